/* The text of the progress line. tests/interop checks that only a terminal gets it. */
#include "program/loadgen/report/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct bench_step step = {4, 0};

/* A snapshot in the middle of a step: 10 s of warm-up, then 20 s. */
static struct bench_live_stats *fresh(uint64_t now_s) {
    struct bench_live_stats *live = calloc(1, sizeof(*live));
    assert_non_null(live);
    live->step = &step;
    live->index = 1;
    live->n_steps = 3;
    live->now_ns = now_s * 1000000000;
    live->from_ns = UINT64_C(10000000000);
    live->until_ns = UINT64_C(30000000000);
    return live;
}

static void assert_line(const struct bench_live_stats *live, const struct bench_live_stats *before,
                        unsigned columns, const char *line) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    buf_init(&out, arena, 0);
    bench_progress_print(&out, live, before, columns);
    if (!str_is(buf_str(&out), line)) {
        fail_msg("\"%.*s\"", STR_ARG(buf_str(&out)));
    }
    arena_free(arena);
}

static void progress_line_shows_phase(void **state) {
    (void)state;
    struct bench_live_stats *before = fresh(3), *live = fresh(4);
    live->n_answered = 12000;
    assert_line(live, before, 100,
                "2 of 3  concurrency 4  12,000/s  0 errors  warming up, 6 s left");
    live->now_ns = UINT64_C(20000000000);
    before->now_ns = UINT64_C(18000000000);
    before->n_answered = 2000;
    live->n_failed = 1;
    bench_histogram_add(&before->latency, 900000000);
    bench_histogram_add(&live->latency, 900000000); /* before the snapshot: not counted again */
    bench_histogram_add(&live->latency, 1000000);
    assert_line(live, before, 100,
                "2 of 3  concurrency 4  5,000/s  p50 1.001  p99 1.001 ms  1 error  10 s left");
    live->until_ns = UINT64_MAX;
    live->n_left = 1234;
    assert_line(live, before, 100,
                "2 of 3  concurrency 4  5,000/s  p50 1.001  p99 1.001 ms  1 error  1,234 "
                "requests left");
    live->until_ns = live->now_ns;
    assert_line(live, before, 100,
                "2 of 3  concurrency 4  5,000/s  p50 1.001  p99 1.001 ms  1 error  waiting "
                "for the last "
                "answers");
    free(before);
    free(live);
}

static void progress_line_is_cut_to_width(void **state) {
    (void)state;
    struct bench_live_stats *before = fresh(3), *live = fresh(4);
    assert_line(live, before, 10, "2 of 3  co");
    assert_line(live, before, 0, "");
    free(before);
    free(live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_line_shows_phase),
        cmocka_unit_test(progress_line_is_cut_to_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
