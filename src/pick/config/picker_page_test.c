/* docs/picker.md and the pages of docs/picker/ against the program: their examples are valid, have
 * every section, and their tables state the actual defaults. Runs in the repository's root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/config/page_fixture.h"
#include "pick/config/scrape_rules.h"
#include "pick/discovery/file/pool_file.h"

/* Returns: the example of `path` with this number, from 0. */
static struct str example(const char *path, int number) {
    const char *rest = page_read(path);
    struct str text = page_next_example(&rest);
    for (int i = 0; i < number; i++) {
        text = page_next_example(&rest);
    }
    assert_non_null(text.ptr);
    return text;
}

static struct pool_spec *parse(struct str text) {
    struct pool_specs specs;
    struct error err;
    if (pool_file_parse("example", text, &specs, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    struct pool_spec *spec = specs.items[0];
    specs.items[0] = NULL;
    pool_specs_free(&specs);
    return spec;
}

static void page_full_example_is_accepted(void **state) {
    (void)state;
    struct pool_spec *spec = parse(example("docs/picker.md", 0)), *defaults = parse(STR(""));
    assert_int_equal(spec->n_endpoints, 5);
    assert_int_equal(spec->n_models, 2);
    assert_int_equal(spec->n_rewrites, 1);
    assert_int_equal(spec->n_objectives, 2);
    assert_true(spec->strict_models);
    assert_false(defaults->strict_models);
    assert_int_equal(spec->health.kind, POOL_HEALTH_HTTP);
    assert_int_equal(spec->refused_ns, defaults->refused_ns);
    assert_memory_equal(&spec->outlier_detection, &defaults->outlier_detection,
                        sizeof(spec->outlier_detection));
    assert_int_equal(spec->max_in_flight, defaults->max_in_flight);
    assert_int_equal(spec->retry_after_s, defaults->retry_after_s);
    assert_int_equal(spec->protocol.fallback, defaults->protocol.fallback);
    assert_int_equal(spec->protocol.conformance, defaults->protocol.conformance);
    struct pool_spec *bare = parse(STR("health: {http: /v2/health/ready}\n"));
    assert_int_equal(spec->health.interval_ns, bare->health.interval_ns);
    assert_int_equal(spec->health.timeout_ns, bare->health.timeout_ns);
    assert_int_equal(spec->health.n_healthy, bare->health.n_healthy);
    assert_int_equal(spec->health.n_unhealthy, bare->health.n_unhealthy);
    pool_spec_free(bare);
    pool_spec_free(defaults);
    pool_spec_free(spec);
}

static void page_kube_objects_are_accepted(void **state) {
    (void)state;
    struct pool_spec *spec = parse(example("docs/picker/objects.md", 0));
    assert_true(str_is(spec->name, "llama-pool"));
    assert_int_equal(spec->n_endpoints, 2);
    assert_int_equal(spec->endpoints[0].address.port, 8000);
    assert_int_equal(spec->selector.n, 1);
    assert_int_equal(spec->n_models, 1);
    assert_int_equal(spec->n_objectives, 1);
    assert_int_equal(spec->n_rewrites, 1);
    pool_spec_free(spec);
}

static void page_pool_list_is_accepted(void **state) {
    (void)state;
    struct pool_specs specs;
    struct error err;
    if (pool_file_parse("example", example("docs/picker/pools.md", 0), &specs, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(specs.is_list);
    assert_int_equal(specs.n, 3);
    assert_int_equal(specs.items[0]->match.n_authorities, 2);
    assert_int_equal(specs.items[1]->health.kind, POOL_HEALTH_HTTP);
    pool_specs_free(&specs);
}

/* The table has each name of the protocol, with each header of its default. */
static void page_protocol_names_are_listed(void **state) {
    static const struct {
        const char *field, *preset;
    } rows[] = {
#define NAME(field, kind, preset, help) {#field, preset},
#include "pick/pool/endpoint/protocol.def"
#undef NAME
    };
    (void)state;
    const char *page = page_read("docs/picker/protocol-names.md");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char row[200];
        snprintf(row, sizeof(row), "\n| `%s`", rows[i].field);
        const char *at = strstr(page, row);
        assert_non_null(at);
        struct str line = str_make(at + 1, strcspn(at + 1, "\n"));
        struct str presets = str_of(rows[i].preset);
        while (presets.ptr) {
            struct str preset = str_cut(&presets, ',');
            assert_non_null(memmem(line.ptr, line.len, preset.ptr, preset.len));
        }
    }
}

/* The table's defaults are those of a minimal plan. */
static void page_metrics_are_accepted(void **state) {
    (void)state;
    struct pool_spec *one_line = parse(example("docs/picker/loads.md", 0));
    struct pool_spec *full = parse(example("docs/picker/loads.md", 1));
    const struct scrape_plan *plain = one_line->scrape, *plan = full->scrape;
    assert_string_equal(plain->preset.ptr, "vllm");
    assert_true(plan->interval_ns == plain->interval_ns && plan->timeout_ns == plain->timeout_ns);
    assert_true(plan->max_age_ns == plain->max_age_ns && plan->https == plain->https);
    assert_int_equal(plan->most_per_second, plain->most_per_second);
    assert_int_equal(plan->max_page_bytes, plain->max_page_bytes);
    assert_int_equal(plan->source.port, 9100);
    assert_int_equal(plan->source.rules.n, 6);
    pool_spec_free(one_line);
    pool_spec_free(full);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_full_example_is_accepted),
        cmocka_unit_test(page_kube_objects_are_accepted),
        cmocka_unit_test(page_pool_list_is_accepted),
        cmocka_unit_test(page_protocol_names_are_listed),
        cmocka_unit_test(page_metrics_are_accepted),
    };
    return cmocka_run_group_tests_name("pick/config/picker_page", tests, NULL, NULL);
}
