/* The CPU quota, read from folders made for the test. */
#include "core/os/cpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/os/cgroup_fixture.h"

struct row {
    const char *what;
    const char *proc; /* /proc/self/cgroup */
    struct cgroup_fixture_file files[CGROUP_FIXTURE_FILES];
    double quota;
};

static const struct row ROWS[] = {
    {"v2, no quota", "0::/\n", {{"cpu.max", "max 100000\n"}}, 0},
    {"v2, one and a half", "0::/\n", {{"cpu.max", "150000 100000\n"}}, 1.5},
    {"v2, the parent is tighter",
     "0::/a/b\n",
     {{"a/cpu.max", "50000 100000\n"}, {"a/b/cpu.max", "200000 100000\n"}},
     0.5},
    {"v2, the group is tighter",
     "0::/a/b\n",
     {{"a/cpu.max", "400000 100000\n"}, {"a/b/cpu.max", "200000 100000\n"}},
     2},
    {"v2, the host's path is not here", "0::/docker/0123\n", {{"cpu.max", "300000 100000\n"}}, 3},
    {"v1",
     "4:memory:/x\n3:cpu,cpuacct:/a\n0::/y\n",
     {{"cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n"},
      {"cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}},
     2.5},
    {"v1, mounted as cpu",
     "3:cpu,cpuacct:/\n",
     {{"cpu/cpu.cfs_quota_us", "100000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     1},
    {"v1, no quota",
     "1:cpu:/\n",
     {{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     0},
    {"v1, another controller's quota",
     "1:cpuacct:/\n",
     {{"cpu/cpu.cfs_quota_us", "100000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     0},
    {"nonsense", "hello\n::\n0::\n", {{"cpu.max", "1e5 0x10\n"}}, 0},
    {"a period of 0", "0::/\n", {{"cpu.max", "100000 0\n"}}, 0},
    {"nothing", "", {{"cpu.max", "100000 100000\n"}}, 0},
};

static void cpus_quota_read_takes_smallest_limit(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const struct row *row = &ROWS[i];
        struct cgroup_fixture fixture;
        cgroup_fixture_init(&fixture, row->proc, row->files);
        double quota = cpus_quota_read(fixture.proc, fixture.mount);
        if (quota < row->quota || quota > row->quota) {
            fail_msg("%s: expected %g, got %g", row->what, row->quota, quota);
        }
        cgroup_fixture_fini(&fixture);
    }
    assert_true(cpus_quota_read("/nonexistent", "/nonexistent") <= 0);
}

static void cpus_read_of_this_machine_is_consistent(void **state) {
    (void)state;
    struct cpus cpus;
    cpus_read(&cpus);
    assert_true(cpus.affinity >= 1);
    assert_true(cpus.usable >= 1 && cpus.usable <= cpus.affinity);
    assert_true(cpus.quota_below_affinity == (cpus.quota > 0 && cpus.quota < cpus.affinity));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_quota_read_takes_smallest_limit),
        cmocka_unit_test(cpus_read_of_this_machine_is_consistent),
    };
    return cmocka_run_group_tests_name("core/os/cpus", tests, NULL, NULL);
}
