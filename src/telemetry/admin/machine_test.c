/* Parsing of /proc texts, and plausibility of the real ones. */
#include "telemetry/admin/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"

static void machine_number_of_key_is_parsed(void **state) {
    struct str text = STR("MemTotal:       16318480 kB\nMemFree: 5\nBad: x\nMemAvailable:\t 7 kB");
    (void)state;
    assert_int_equal(admin_machine_parse_number(text, STR("MemTotal:")), 16318480);
    assert_int_equal(admin_machine_parse_number(text, STR("MemFree:")), 5);
    assert_int_equal(admin_machine_parse_number(text, STR("MemAvailable:")), 7);
    assert_int_equal(admin_machine_parse_number(text, STR("Bad:")), 0);
    assert_int_equal(admin_machine_parse_number(text, STR("Cached:")), 0);
    assert_int_equal(admin_machine_parse_number(STR(""), STR("Cached:")), 0);
}

static void machine_cpu_ticks_are_summed(void **state) {
    static const struct {
        const char *text;
        uint64_t busy, idle;
    } cases[] = {
        {"cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 5 5 5 5\n", 87600321, 54000},
        {"cpu0 1 1 1 1\ncpu  1 0 0 2\n", 1, 2},
        {"cpu  1 2 x 4 5\n", 3, 0},
        {"", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t busy, idle;
        admin_machine_parse_cpu_ticks(str_of(cases[i].text), &busy, &idle);
        assert_int_equal(busy, cases[i].busy);
        assert_int_equal(idle, cases[i].idle);
    }
}

static void machine_read_fills_plausible_stats(void **state) {
    struct admin_machine machine;
    struct admin_machine_stats seen;
    (void)state;
    clock_set_fake_ns(1000);
    admin_machine_init(&machine);
    admin_machine_read(&machine, &seen);
    assert_true(seen.utilization <= 0); /* no earlier sample */
    assert_true(seen.resident_bytes > 4096);
    assert_true(seen.memory_total_bytes > seen.memory_used_bytes);
    clock_set_fake_ns(UINT64_C(2000000000));
    admin_machine_read(&machine, &seen);
    assert_true(seen.utilization >= 0 && seen.utilization <= 1);
    clock_set_fake_ns(0);
    admin_machine_fini(&machine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_number_of_key_is_parsed),
        cmocka_unit_test(machine_cpu_ticks_are_summed),
        cmocka_unit_test(machine_read_fills_plausible_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
