/* Shares of the memory that a process may use: their bytes, and the text for --check and the
 * log. */
#include "program/process/memory_share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define TIB (UINT64_C(1) << 40)

static void memory_share_is_resolved_and_printed(void **state) {
    (void)state;
    static const struct {
        struct option_memory memory;
        struct memory_limit limit;
        uint64_t n_bytes;
        const char *text;
    } rows[] = {
        {{.percent = 50},
         {512 * MIB, MEMORY_LIMIT_CGROUP},
         256 * MIB,
         "256 MiB (50% of 512 MiB, limit of the cgroup)"},
        {{.percent = 40},
         {512 * MIB, MEMORY_LIMIT_CGROUP},
         214748364,
         "204.8 MiB (40% of 512 MiB, limit of the cgroup)"},
        {{.percent = 100},
         {24 * 1024 * MIB + 512 * MIB, MEMORY_LIMIT_MACHINE},
         24 * 1024 * MIB + 512 * MIB,
         "24.5 GiB (100% of 24.5 GiB, memory of the machine)"},
        {{.percent = 1}, {99, MEMORY_LIMIT_DATA}, 1, "1 B (1% of 99 B, limit on the data segment)"},
        {{.percent = 99},
         {UINT64_MAX, MEMORY_LIMIT_ADDRESS_SPACE},
         UINT64_MAX / 100 * 99 + UINT64_MAX % 100 * 99 / 100,
         "16609443.8 TiB (99% of 16777216 TiB, limit on the address space)"},
        {{.n_bytes = TIB},
         {512 * MIB, MEMORY_LIMIT_CGROUP},
         TIB,
         "1 TiB (of 512 MiB, limit of the cgroup)"},
        {{.n_bytes = 1536},
         {512 * MIB, MEMORY_LIMIT_MACHINE},
         1536,
         "1.5 KiB (of 512 MiB, memory of the machine)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct option_memory memory = rows[i].memory;
        char text[MEMORY_SHARE_TEXT_BYTES];
        memory_share_resolve(&memory, &rows[i].limit);
        assert_true(memory.n_bytes == rows[i].n_bytes);
        assert_int_equal(memory.percent, rows[i].memory.percent);
        assert_string_equal(memory_share_print(text, &memory, &rows[i].limit), rows[i].text);
    }
}

static void memory_share_cap_is_for_shares(void **state) {
    (void)state;
    struct option_memory share = {.percent = 40, .n_bytes = 400 * MIB},
                         size = {.n_bytes = 400 * MIB};
    const struct option_memory larger = {.percent = 50, .n_bytes = 500 * MIB},
                               smaller = {.n_bytes = 64 * MIB};
    memory_share_cap(&share, &larger);
    assert_true(share.percent == 40 && share.n_bytes == 400 * MIB);
    memory_share_cap(&size, &smaller);
    assert_true(size.n_bytes == 400 * MIB);
    memory_share_cap(&share, &smaller);
    assert_true(share.percent == 0 && share.n_bytes == 64 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_share_is_resolved_and_printed),
        cmocka_unit_test(memory_share_cap_is_for_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
