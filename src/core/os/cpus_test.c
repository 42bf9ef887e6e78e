/* The CPU quota, read from folders made for the test. */
#include "core/os/cpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH_BYTES = 512, MOST_FILES = 4 };

struct file {
    const char *path; /* under the mount */
    const char *text;
};

struct row {
    const char *what;
    const char *proc; /* /proc/self/cgroup */
    struct file files[MOST_FILES];
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

/* Makes the file and the folders above it. */
static void write_file(const char *root, const char *path, const char *text) {
    char whole[PATH_BYTES];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *root, const char *path) {
    char whole[PATH_BYTES];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    assert_int_equal(unlink(whole), 0);
    for (char *at; (at = strrchr(whole, '/')) && at > whole + strlen(root);) {
        *at = '\0';
        rmdir(whole);
    }
}

static void cpus_quota_read_takes_smallest_limit(void **state) {
    (void)state;
    char root[] = "/tmp/sluice-cpus-XXXXXX";
    assert_non_null(mkdtemp(root));
    char proc[PATH_BYTES];
    snprintf(proc, sizeof(proc), "%s/proc", root);
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const struct row *row = &ROWS[i];
        write_file(root, "proc", row->proc);
        for (size_t f = 0; f < MOST_FILES && row->files[f].path; f++) {
            write_file(root, row->files[f].path, row->files[f].text);
        }
        double quota = cpus_quota_read(proc, root);
        if (quota < row->quota || quota > row->quota) {
            fail_msg("%s: expected %g, got %g", row->what, row->quota, quota);
        }
        for (size_t f = 0; f < MOST_FILES && row->files[f].path; f++) {
            remove_file(root, row->files[f].path);
        }
        remove_file(root, "proc");
    }
    assert_int_equal(rmdir(root), 0);
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
