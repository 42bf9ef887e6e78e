/* Pressure on memory, read from folders made for the test. */
#include "core/os/memory_pressure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/os/cgroup_fixture.h"

static const uint64_t SECOND_NS = UINT64_C(1000000000);

/* A process in the group /a; the machine's files are in `machine`. */
static bool check(struct memory_pressure *pressure, const struct cgroup_fixture_file *files,
                  uint64_t now_ns) {
    struct cgroup_fixture fixture;
    char machine[CGROUP_FIXTURE_PATH_BYTES];
    cgroup_fixture_init(&fixture, "0::/a\n", files);
    snprintf(machine, sizeof(machine), "%s/machine", fixture.mount);
    bool is_short = memory_pressure_check(
        pressure, &(struct memory_pressure_files){fixture.proc, fixture.mount, machine}, now_ns);
    cgroup_fixture_fini(&fixture);
    return is_short;
}

#define STALLS(total) "some avg10=0.00 avg60=0.00 avg300=0.00 total=" total "\nfull total=0\n"

static void check_stalls(const char *path) {
    const struct cgroup_fixture_file before[] = {{path, STALLS("1000000")}, {NULL, NULL}};
    const struct cgroup_fixture_file little[] = {{path, STALLS("1099999")}, {NULL, NULL}};
    const struct cgroup_fixture_file more[] = {{path, STALLS("1199999")}, {NULL, NULL}};
    const struct cgroup_fixture_file none[] = {{NULL, NULL}};
    struct memory_pressure pressure = {0};
    assert_false(check(&pressure, before, SECOND_NS)); /* of the time before this process */
    assert_false(check(&pressure, little, 2 * SECOND_NS));
    assert_true(check(&pressure, more, 3 * SECOND_NS));
    assert_false(check(&pressure, more, 4 * SECOND_NS));
    assert_false(check(&pressure, before, 5 * SECOND_NS)); /* moved to another group */
    assert_false(check(&pressure, none, 6 * SECOND_NS));
    assert_false(check(&pressure, more, 7 * SECOND_NS));
}

static void memory_pressure_stalls_of_group_or_machine_are_found(void **state) {
    (void)state;
    check_stalls("a/memory.pressure");
    check_stalls("machine/memory");
}

static void memory_pressure_stalls_of_machine_do_not_count_beside_group(void **state) {
    const struct cgroup_fixture_file before[] = {
        {"a/memory.pressure", STALLS("0")}, {"machine/memory", STALLS("0")}, {NULL, NULL}};
    const struct cgroup_fixture_file after[] = {
        {"a/memory.pressure", STALLS("0")}, {"machine/memory", STALLS("900000")}, {NULL, NULL}};
    struct memory_pressure pressure = {0};
    (void)state;
    assert_false(check(&pressure, before, SECOND_NS));
    assert_false(check(&pressure, after, 2 * SECOND_NS));
}

static void memory_pressure_use_near_limit_is_found(void **state) {
    static const struct {
        struct cgroup_fixture_file files[CGROUP_FIXTURE_FILES];
        bool is_short;
    } rows[] = {
        {{{"a/memory.max", "1600\n"}, {"a/memory.current", "1500\n"}}, true},
        {{{"a/memory.max", "1600\n"}, {"a/memory.current", "1499\n"}}, false},
        {{{"a/memory.high", "1600\n"}, {"a/memory.max", "max\n"}, {"a/memory.current", "1500\n"}},
         true},
        {{{"memory.max", "1600\n"}, {"memory.current", "1500\n"}}, true}, /* the parent's */
        {{{"a/memory.max", "1600\n"},
          {"a/memory.current", "1600\n"},
          {"a/memory.stat", "anon 1\ninactive_file 101\nactive_file 5\n"}},
         false},
        {{{"a/memory.max", "1600\n"},
          {"a/memory.current", "1600\n"},
          {"a/memory.stat", "anon 1\ninactive_file 100\n"}},
         true},
        {{{"a/memory.max", "max\n"}, {"a/memory.current", "1600\n"}}, false},
        {{{"a/memory.max", "nonsense"}, {"a/memory.current", ""}}, false},
        {{{"a/memory.pressure", "some total=\nnonsense"}, {"machine/memory", "total"}}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct memory_pressure pressure = {0};
        assert_int_equal(check(&pressure, rows[i].files, SECOND_NS), rows[i].is_short);
    }
}

int main(void) {
    heap_purge();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_pressure_stalls_of_group_or_machine_are_found),
        cmocka_unit_test(memory_pressure_stalls_of_machine_do_not_count_beside_group),
        cmocka_unit_test(memory_pressure_use_near_limit_is_found),
    };
    return cmocka_run_group_tests_name("core/os/memory_pressure", tests, NULL, NULL);
}
