/* Host policies: their texts, and threads that are placed by them. */
#include "core/os/host_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TEXTS_MAX = 4 };

static enum status parse(struct arena *arena, const char *const *texts, struct host_policies *out,
                         struct error *err) {
    size_t n = 0;
    while (n < TEXTS_MAX && texts[n]) {
        n++;
    }
    return host_policies_parse(texts, n, arena, out, err);
}

static void host_policies_parse_reads_lists_of_cpus(void **state) {
    const char *const texts[TEXTS_MAX] = {"cpu,cpu-cores=7", "p,cpu-cores=0-2,8,10-11",
                                          "p,numa-node=3", "cpu,cpu-cores=1-1"};
    struct arena *arena = arena_new(NULL, 0);
    struct host_policies policies;
    struct error err;
    (void)state;
    assert_int_equal(parse(arena, texts, &policies, &err), ST_OK);
    assert_int_equal(policies.n, 2);
    const struct host_policy *p = host_policies_find(&policies, STR("p"));
    assert_true(p->has_cpus && p->has_node);
    assert_int_equal(p->node, 3);
    assert_int_equal(CPU_COUNT(&p->cpus), 6);
    assert_true(CPU_ISSET(2, &p->cpus) && CPU_ISSET(8, &p->cpus) && CPU_ISSET(11, &p->cpus));
    const struct host_policy *cpu = host_policies_find(&policies, STR("cpu"));
    assert_false(cpu->has_node);
    assert_int_equal(CPU_COUNT(&cpu->cpus), 1); /* the last one counts */
    assert_true(CPU_ISSET(1, &cpu->cpus));
    assert_null(host_policies_find(&policies, STR("gpu_0")));
    arena_free(arena);
}

static void host_policies_parse_wrong_text_is_refused(void **state) {
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"", "expected NAME,SETTING=VALUE"},
        {"p", "expected NAME,SETTING=VALUE"},
        {"p,", "expected NAME,SETTING=VALUE"},
        {"p,cpu-cores", "expected NAME,SETTING=VALUE"},
        {"p,cpu-cores=", "expected NAME,SETTING=VALUE"},
        {",cpu-cores=1", "expected NAME,SETTING=VALUE"},
        {"p,=1", "expected NAME,SETTING=VALUE"},
        {"p,cores=1", "p: expected cpu-cores or numa-node, got \"cores\""},
        {"p,cpu-cores=a", "p: cpu-cores: expected numbers and ranges"},
        {"p,cpu-cores=-1", "p: cpu-cores: expected numbers and ranges"},
        {"p,cpu-cores=1-", "p: cpu-cores: expected numbers and ranges"},
        {"p,cpu-cores=3-1", "p: cpu-cores: expected numbers and ranges"},
        {"p,cpu-cores=1,", "p: cpu-cores: expected numbers and ranges"},
        {"p,cpu-cores=1-2-3", "p: cpu-cores: expected numbers and ranges"},
        {"p,cpu-cores=1024", "p: cpu-cores: 1024 is beyond CPU 1023"},
        {"p,cpu-cores=0-18446744073709551615", "is beyond CPU 1023"},
        {"p,cpu-cores=0-18446744073709551616", "p: cpu-cores: expected numbers and ranges"},
        {"p,numa-node=-1", "p: numa-node: expected a number up to 1023"},
        {"p,numa-node=1024", "p: numa-node: expected a number up to 1023"},
        {"p,numa-node=0,1", "p: numa-node: expected a number up to 1023"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *const texts[TEXTS_MAX] = {rows[i].text};
        struct arena *arena = arena_new(NULL, 0);
        struct host_policies policies;
        struct error err;
        assert_int_equal(parse(arena, texts, &policies, &err), ST_BAD_CONFIG);
        if (!strstr(err.text, rows[i].reason)) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        arena_free(arena);
    }
}

static void host_policy_join_allows_what_both_allow(void **state) {
    const char *const texts[TEXTS_MAX] = {"a,cpu-cores=0-1", "a,numa-node=0", "b,cpu-cores=1-2",
                                          "c,numa-node=0"};
    struct arena *arena = arena_new(NULL, 0);
    struct host_policies policies;
    struct error err;
    (void)state;
    assert_int_equal(parse(arena, texts, &policies, &err), ST_OK);
    struct host_policy joined = policies.items[0];
    host_policy_join(&joined, &policies.items[1]);
    assert_true(joined.has_cpus);
    assert_false(joined.has_node);
    assert_int_equal(CPU_COUNT(&joined.cpus), 3);
    joined = policies.items[0];
    host_policy_join(&joined, &policies.items[2]);
    assert_false(joined.has_cpus);
    assert_true(joined.has_node);
    arena_free(arena);
}

/* One of the CPUs that this test may use. */
static size_t first_cpu(const struct thread_placement *placement) {
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &placement->cpus)) {
        cpu++;
    }
    return cpu;
}

static void thread_placement_apply_binds_and_restore_unbinds(void **state) {
    struct thread_placement before, now;
    struct host_policy policy = {.name = STR("p"), .has_cpus = true};
    struct error err;
    (void)state;
    thread_placement_read(&before);
    assert_true(before.has_cpus);
    CPU_SET(first_cpu(&before), &policy.cpus);
    CPU_SET(CPU_SETSIZE - 1, &policy.cpus); /* which is left out */
    assert_int_equal(host_policy_count_cpus(&policy, &before), 1);
    assert_int_equal(thread_placement_apply(&before, &policy, &err), ST_OK);
    thread_placement_read(&now);
    assert_int_equal(CPU_COUNT(&now.cpus), 1);
    assert_true(CPU_ISSET(first_cpu(&before), &now.cpus));
    thread_placement_restore(&before);
    thread_placement_read(&now);
    assert_true(CPU_EQUAL(&now.cpus, &before.cpus));
}

static void thread_placement_apply_missing_cpus_or_node_is_refused(void **state) {
    struct thread_placement before;
    struct host_policy cpus = {.name = STR("p"), .has_cpus = true},
                       node = {.name = STR("q"), .has_node = true, .node = NUMA_NODES_MAX - 1};
    struct error err;
    (void)state;
    thread_placement_read(&before);
    CPU_CLR(CPU_SETSIZE - 1, &before.cpus);
    CPU_SET(CPU_SETSIZE - 1, &cpus.cpus);
    assert_int_equal(thread_placement_apply(&before, &cpus, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "this process may use none of the CPUs 1023; it may use "));
    assert_int_equal(thread_placement_apply(&before, &node, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "this machine has no NUMA node 1023"));
    thread_placement_restore(&before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_policies_parse_reads_lists_of_cpus),
        cmocka_unit_test(host_policies_parse_wrong_text_is_refused),
        cmocka_unit_test(host_policy_join_allows_what_both_allow),
        cmocka_unit_test(thread_placement_apply_binds_and_restore_unbinds),
        cmocka_unit_test(thread_placement_apply_missing_cpus_or_node_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
