/* Failures by reason, and the sums over threads. */
#include "program/loadgen/report/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct bench_stats *fresh(void) {
    struct bench_stats *stats = calloc(1, sizeof(*stats));
    assert_non_null(stats);
    return stats;
}

static void fail_with(struct bench_stats *stats, enum status status, int32_t http, int32_t mip,
                      const char *text) {
    struct bench_error failed = {.http_status = http, .mip_error = mip};
    error_set(&failed.err, status, "%s", text);
    bench_stats_failure(stats, &failed, true);
}

static void stats_failures_grouped_by_code(void **state) {
    (void)state;
    static const struct {
        struct bench_failure failure;
        const char *text;
    } rows[] = {
        {{ST_REFUSED, 503, -1, 0, 1, ""}, "HTTP 503"},
        {{ST_REFUSED, 0, 4, 0, 1, ""}, "MIP SHAPE"},
        {{ST_REFUSED, 0, 0, 0, 1, ""}, "MIP PROTOCOL"},
        {{ST_REFUSED, 0, 99, 0, 1, ""}, "MIP unknown"},
        {{ST_REFUSED, 0, -1, 5, 1, ""}, "gRPC NOT_FOUND"},
        {{ST_DEADLINE_EXCEEDED, 0, -1, 0, 1, ""}, "timeout"},
        {{ST_IO, 0, -1, 0, 1, ""}, "connection failed"},
        {{ST_BAD_ANSWER, 0, -1, 0, 1, ""}, "broken answer"},
        {{ST_NO_MEMORY, 0, -1, 0, 1, ""}, "out of memory"},
    };
    struct arena *arena = arena_new(NULL, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf out;
        buf_init(&out, arena, 0);
        bench_failure_print(&out, &rows[i].failure);
        assert_true(str_is(buf_str(&out), rows[i].text));
    }
    arena_free(arena);
}

static void stats_failure_keeps_first_message(void **state) {
    (void)state;
    struct bench_stats *stats = fresh(), *other = fresh();
    fail_with(stats, ST_REFUSED, 503, -1, "queue full");
    fail_with(stats, ST_REFUSED, 503, -1, "queue still full");
    fail_with(stats, ST_REFUSED, 400, -1, "bad shape");
    fail_with(other, ST_DEADLINE_EXCEEDED, 0, -1, "late");
    fail_with(other, ST_REFUSED, 503, -1, "other words");
    bench_stats_success(other, 1000);
    other->last_ns = 7;
    bench_stats_merge(stats, other);
    assert_int_equal(stats->n_failed, 5);
    assert_int_equal(stats->n_failures, 3);
    assert_int_equal(stats->failures[0].count, 3);
    assert_string_equal(stats->failures[0].first, "queue full");
    assert_string_equal(stats->failures[1].first, "bad shape");
    assert_string_equal(stats->failures[2].first, "late");
    assert_int_equal(bench_histogram_total(&stats->latency), 1);
    assert_int_equal(stats->last_ns, 7);
    assert_int_equal(bench_counter_get(&stats->n_refused), 5);
    free(stats);
    free(other);
}

/* Before measuring they are counted in the live counters only. */
static void stats_warm_up_failures_not_counted(void **state) {
    (void)state;
    struct bench_stats *stats = fresh();
    struct bench_error failed = {.err = {.status = ST_DEADLINE_EXCEEDED}, .mip_error = -1};
    bench_stats_failure(stats, &failed, false);
    assert_int_equal(stats->n_failed, 0);
    assert_int_equal(stats->n_failures, 0);
    assert_int_equal(bench_counter_get(&stats->n_refused), 1);
    free(stats);
}

static void stats_excess_reasons_share_last(void **state) {
    (void)state;
    struct bench_stats *stats = fresh();
    for (int32_t i = 0; i < 2 * BENCH_FAILURE_KINDS; i++) {
        fail_with(stats, ST_REFUSED, 400 + i, -1, "no");
    }
    uint64_t n = 0;
    assert_int_equal(stats->n_failures, BENCH_FAILURE_KINDS);
    for (size_t i = 0; i < stats->n_failures; i++) {
        n += stats->failures[i].count;
    }
    assert_int_equal(n, 2 * BENCH_FAILURE_KINDS);
    free(stats);
}

/* A long message is cut at a character boundary. */
static void stats_long_message_is_cut(void **state) {
    (void)state;
    struct bench_stats *stats = fresh();
    char text[512] = "x";
    while (strlen(text) + 3 < sizeof(text)) {
        strcat(text, "ü");
    }
    fail_with(stats, ST_REFUSED, 500, -1, text);
    size_t n = strlen(stats->failures[0].first);
    assert_true(n == BENCH_FAILURE_TEXT_BYTES - 1 && n % 2 == 1);
    assert_memory_equal(stats->failures[0].first, text, n);
    free(stats);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_failures_grouped_by_code),
        cmocka_unit_test(stats_failure_keeps_first_message),
        cmocka_unit_test(stats_warm_up_failures_not_counted),
        cmocka_unit_test(stats_excess_reasons_share_last),
        cmocka_unit_test(stats_long_message_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
