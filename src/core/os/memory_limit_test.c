/* The memory of this process: limits of control groups, read from folders made for the test. */
#include "core/os/memory_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/os/cgroup_fixture.h"

#define MIB (UINT64_C(1) << 20)

struct row {
    const char *what;
    const char *proc; /* /proc/self/cgroup */
    struct cgroup_fixture_file files[CGROUP_FIXTURE_FILES];
    uint64_t n_bytes;
};

static const struct row ROWS[] = {
    {"v2, no limit", "0::/\n", {{"memory.max", "max\n"}, {"memory.high", "max\n"}}, 0},
    {"v2", "0::/\n", {{"memory.max", "536870912\n"}, {"memory.high", "max\n"}}, 512 * MIB},
    {"v2, the parent is tighter",
     "0::/a/b\n",
     {{"a/memory.max", "268435456\n"}, {"a/b/memory.max", "536870912\n"}},
     256 * MIB},
    {"v2, the group is tighter",
     "0::/a/b\n",
     {{"a/memory.max", "536870912\n"}, {"a/b/memory.max", "268435456\n"}},
     256 * MIB},
    {"v2, memory.high is lower",
     "0::/a\n",
     {{"a/memory.max", "536870912\n"}, {"a/memory.high", "134217728\n"}},
     128 * MIB},
    {"v2, memory.high of the parent alone", "0::/a\n", {{"memory.high", "134217728\n"}}, 128 * MIB},
    {"v2, the host's path is not here", "0::/docker/0123\n", {{"memory.max", "1048576\n"}}, MIB},
    {"v1",
     "4:memory:/x\n3:cpu,cpuacct:/a\n0::/y\n",
     {{"memory/x/memory.limit_in_bytes", "1073741824\n"}},
     1024 * MIB},
    {"v1, the parent is tighter",
     "4:memory:/x/y\n",
     {{"memory/x/y/memory.limit_in_bytes", "1073741824\n"},
      {"memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"memory/x/memory.limit_in_bytes", "67108864\n"}},
     64 * MIB},
    {"v1, no limit, 4 KiB pages",
     "4:memory:/\n",
     {{"memory/memory.limit_in_bytes", "9223372036854771712\n"}},
     0},
    {"v1, no limit, 64 KiB pages",
     "4:memory:/\n",
     {{"memory/memory.limit_in_bytes", "9223372036854710272\n"}},
     0},
    {"v1, the host's path is not here",
     "4:memory:/docker/0123\n",
     {{"memory/memory.limit_in_bytes", "1048576\n"}},
     MIB},
    {"v1, another controller's group",
     "4:memory:/a\n1:cpu:/b\n",
     {{"memory/b/memory.limit_in_bytes", "1048576\n"}},
     0},
    {"both",
     "4:memory:/\n0::/\n",
     {{"memory/memory.limit_in_bytes", "2097152\n"}, {"memory.max", "1048576\n"}},
     MIB},
    {"nonsense", "hello\n::\n0::\n", {{"memory.max", "-1\n"}, {"memory.high", "1e6\n"}}, 0},
    {"over 64 bits", "0::/\n", {{"memory.max", "18446744073709551616\n"}}, 0},
    {"empty", "0::/\n", {{"memory.max", ""}, {"memory.high", "0\n"}}, 0},
    {"nothing", "", {{"memory.max", "1048576\n"}}, 0},
};

static void memory_limit_cgroup_read_takes_smallest_limit(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const struct row *row = &ROWS[i];
        struct cgroup_fixture fixture;
        cgroup_fixture_init(&fixture, row->proc, row->files);
        uint64_t n_bytes = memory_limit_cgroup_read(fixture.proc, fixture.mount);
        if (n_bytes != row->n_bytes) {
            fail_msg("%s: expected %llu, got %llu", row->what, (unsigned long long)row->n_bytes,
                     (unsigned long long)n_bytes);
        }
        cgroup_fixture_fini(&fixture);
    }
    assert_int_equal(memory_limit_cgroup_read("/nonexistent", "/nonexistent"), 0);
}

static void memory_limit_smallest_names_its_source(void **state) {
    (void)state;
    static const struct {
        uint64_t limits[MEMORY_LIMIT_SOURCES];
        struct memory_limit limit;
        const char *text;
    } rows[] = {
        {{512, 0, 0, 0}, {512, MEMORY_LIMIT_MACHINE}, "memory of the machine"},
        {{512, 256, 0, 0}, {256, MEMORY_LIMIT_CGROUP}, "limit of the cgroup"},
        {{512, 1024, 2048, 4096}, {512, MEMORY_LIMIT_MACHINE}, "memory of the machine"},
        {{512, 512, 512, 512}, {512, MEMORY_LIMIT_MACHINE}, "memory of the machine"},
        {{512, 256, 128, 300}, {128, MEMORY_LIMIT_ADDRESS_SPACE}, "limit on the address space"},
        {{512, 0, 300, 299}, {299, MEMORY_LIMIT_DATA}, "limit on the data segment"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct memory_limit is;
        memory_limit_smallest(rows[i].limits, &is);
        assert_int_equal(is.n_bytes, rows[i].limit.n_bytes);
        assert_int_equal(is.source, rows[i].limit.source);
        assert_string_equal(memory_limit_source_text(is.source), rows[i].text);
    }
}

static void memory_limit_read_of_this_machine_is_positive(void **state) {
    (void)state;
    struct memory_limit is;
    memory_limit_read(&is);
    assert_true(is.n_bytes > 0);
    assert_true(is.source < MEMORY_LIMIT_SOURCES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_limit_cgroup_read_takes_smallest_limit),
        cmocka_unit_test(memory_limit_smallest_names_its_source),
        cmocka_unit_test(memory_limit_read_of_this_machine_is_positive),
    };
    return cmocka_run_group_tests_name("core/os/memory_limit", tests, NULL, NULL);
}
