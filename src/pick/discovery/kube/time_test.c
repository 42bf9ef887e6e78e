/* Times as the API writes them. */
#include "pick/discovery/kube/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void time_valid_is_parsed(void **state) {
    static const struct {
        const char *text;
        int64_t seconds;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-22T18:24:52Z", 1795371892},
        {"2026-11-22t18:24:52.123456789z", 1795371892},
        {"2026-11-22T19:24:52+01:00", 1795371892},
        {"2026-11-22T12:54:52.5-05:30", 1795371892},
        {"1969-12-31T23:59:59Z", -1},
        {"2024-02-29T23:59:60Z", 1709251200},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t seconds = 0;
        assert_true(kube_time_parse(str_of(rows[i].text), &seconds));
        assert_int_equal(seconds, rows[i].seconds);
    }
}

static void time_invalid_refused(void **state) {
    static const char *const rows[] = {
        "",
        "tomorrow",
        "2026-11-22",
        "2026-11-22T18:24:52",
        "2026-11-22 18:24:52Z",
        "2026-13-22T18:24:52Z",
        "2026-00-22T18:24:52Z",
        "2026-11-32T18:24:52Z",
        "2026-11-22T24:24:52Z",
        "2026-11-22T18:60:52Z",
        "2026-11-22T18:24:61Z",
        "2026-11-22T18:24:52.Z",
        "2026-11-22T18:24:52ZZ",
        "2026-11-22T18:24:52+0100",
        "2026-11-22T18:24:52+01:0",
        "2026-11-22T18:24:52+24:00",
        "2026-11-22T18:24:52+01:000",
        "+026-11-22T18:24:52Z",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t seconds = 0;
        assert_false(kube_time_parse(str_of(rows[i]), &seconds));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_valid_is_parsed),
                                       cmocka_unit_test(time_invalid_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
