/* The profiles in examples of the documentation, under a hot prompt in simulated time: all requests
 * have the same prompt and session, and the load is half of what the servers can do. An affinity
 * must not make them wait. Runs in the repository's root. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "faults.h"
#include "pick/config/page_fixture.h"
#include "pick/discovery/file/pool_file.h"

/* Cuts the next example of a profile off `*rest`. Returns: ptr NULL when there is none. */
static struct str next_profile(const char **rest) {
    struct str text = page_next_example(rest);
    while (text.ptr && !memmem(text.ptr, text.len, STR("profile:").ptr, 8) &&
           !memmem(text.ptr, text.len, STR("EndpointPickerConfig").ptr, 20)) {
        text = page_next_example(rest);
    }
    return text;
}

static bool has_affinity(const struct profile *profile) {
    bool has = false;
    for (size_t i = 0; i < profile->n_scorers; i++) {
        has = has || profile->scorers[i].plugin->affinity_share > 0;
    }
    for (size_t i = 0; i < profile->n_filters; i++) {
        has = has || profile->filters[i].plugin == &plugin_prefix_cache_affinity_filter ||
              profile->filters[i].plugin == &plugin_session_hash_filter;
    }
    return has;
}

static void check_profile(const char *path, const struct profile *profile) {
    static const uint32_t sizes[] = {3, 10};
    struct sim_fault_scenario scenario = *sim_fault_scenario_find("hot-prefix");
    scenario.made_profile = profile;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct sim_fault_result ours, best;
        sim_faults_run(&scenario, SIM_JUDGE_POOL, sizes[i], 1, &ours);
        sim_faults_run(&scenario, SIM_JUDGE_ORACLE, sizes[i], 1, &best);
        if (ours.n_good < ours.n || ours.p99_s > 1.5 * best.p99_s) {
            fail_msg("%s: with %u servers the profile \"%.*s\" has a p99 of %.0f ms, the fewest in "
                     "flight has %.0f ms",
                     path, sizes[i], STR_ARG(profile->name), ours.p99_s * 1e3, best.p99_s * 1e3);
        }
    }
}

/* Returns: the number of profiles with an affinity. */
static int check_page(const char *path) {
    int n = 0;
    const char *rest = page_read(path);
    for (struct str text = next_profile(&rest); text.ptr; text = next_profile(&rest)) {
        struct pool_specs specs;
        struct error err;
        if (pool_file_parse(path, text, &specs, &err) != ST_OK) {
            fail_msg("%s", err.text);
        }
        for (size_t i = 0; i < specs.n; i++) {
            const struct profile *profile = specs.items[i]->profile;
            if (profile && has_affinity(profile)) {
                check_profile(path, profile);
                n++;
            }
        }
        pool_specs_free(&specs);
    }
    return n;
}

static void examples_hot_prompt_does_not_wait(void **state) {
    static const char *const patterns[] = {"docs/*.md", "docs/*/*.md",
                                           "src/pick/pool/plugins/*/README.md"};
    int n = 0;
    (void)state;
    for (size_t k = 0; k < sizeof(patterns) / sizeof(patterns[0]); k++) {
        glob_t found;
        assert_int_equal(glob(patterns[k], 0, NULL, &found), 0);
        for (size_t i = 0; i < found.gl_pathc; i++) {
            n += check_page(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    assert_true(n >= 5); /* they were found */
}

/* What the reader of no example gets. */
static void examples_default_profile_does_not_wait(void **state) {
    (void)state;
    check_profile("the default", &PROFILE_DEFAULT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_hot_prompt_does_not_wait),
        cmocka_unit_test(examples_default_profile_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
