/* The lines of ping, and the arithmetic of the summary. */
#include "program/commands/ping_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MS = 1000000 };

/* Three pings, the second of them lost. */
static const char *tell(struct arena *arena, bool json) {
    struct ping_report report = {.json = json, .url = "tcp://h:1"};
    struct buf out;
    buf_init(&out, arena, 0);
    ping_report_begin(&report, "a ping of MIP", false, &out);
    ping_report_answer(&report, 1 * MS, &out);
    ping_report_loss(&report, "no \"answer\"", &out);
    ping_report_answer(&report, 4 * MS, &out);
    ping_report_end(&report, UINT64_C(2001) * MS, &out);
    buf_add_char(&out, '\0');
    assert_false(out.failed);
    return out.data;
}

static void ping_report_lines_and_summary(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    assert_string_equal(tell(arena, false), "PING tcp://h:1: a ping of MIP, over one connection\n"
                                            "seq=1 time=1.000 ms\n"
                                            "seq=2 lost: no \"answer\"\n"
                                            "seq=3 time=4.000 ms\n"
                                            "--- tcp://h:1 ping statistics ---\n"
                                            "3 sent, 2 answered, 1 lost (33.3%), time 2001 ms\n"
                                            "min/avg/max/stddev = 1.000/2.500/4.000/1.500 ms\n");
    assert_string_equal(
        tell(arena, true),
        "{\"seq\":1,\"time_ms\":1.000}\n"
        "{\"seq\":2,\"error\":\"no \\\"answer\\\"\"}\n"
        "{\"seq\":3,\"time_ms\":4.000}\n"
        "{\"url\":\"tcp://h:1\",\"sent\":3,\"answered\":2,\"lost\":1,\"min_ms\":1.000,"
        "\"avg_ms\":2.500,\"max_ms\":4.000,\"stddev_ms\":1.500}\n");
    arena_free(arena);
}

static void ping_report_no_answers(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct ping_report report = {.url = "tcp://h:1"};
    struct buf out;
    buf_init(&out, arena, 0);
    ping_report_end(&report, 0, &out);
    ping_report_loss(&report, "why", &out);
    out.len = 0;
    ping_report_end(&report, 0, &out);
    report.json = true;
    ping_report_end(&report, 0, &out);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data, "--- tcp://h:1 ping statistics ---\n"
                                  "1 sent, 0 answered, 1 lost (100%), time 0 ms\n"
                                  "{\"url\":\"tcp://h:1\",\"sent\":1,\"answered\":0,\"lost\":1}\n");
    arena_free(arena);
}

/* Long times that differ little: the deviation keeps its precision. */
static void ping_report_deviation_is_exact(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct ping_report report = {.url = "u"};
    struct buf out;
    for (uint64_t i = 0; i < 1000; i++) {
        buf_init(&out, arena, 0);
        ping_report_answer(&report, UINT64_C(3600000) * MS + (i % 2) * 2 * MS, &out);
    }
    buf_init(&out, arena, 0);
    ping_report_end(&report, 0, &out);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data,
                        "--- u ping statistics ---\n"
                        "1000 sent, 1000 answered, 0 lost (0%), time 0 ms\n"
                        "min/avg/max/stddev = 3600000.000/3600001.000/3600002.000/1.000 ms\n");
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ping_report_lines_and_summary),
        cmocka_unit_test(ping_report_no_answers),
        cmocka_unit_test(ping_report_deviation_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
