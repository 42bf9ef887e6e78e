/* When a model counts as fast. */
#include "serve/scheduler/exec_time_stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

struct run {
    int n;
    uint64_t us;
    uint64_t together; /* rows per execution */
};

struct row {
    const char *why;
    struct run runs[6]; /* n 0: no more runs */
    bool cheap;
};

static const struct row rows[] = {
    {"nothing is known", {{0, 0, 1}}, false},
    {"not enough runs", {{11, 10, 1}}, false},
    {"enough quick runs", {{12, 10, 1}}, true},
    {"a few of the window may be slow", {{4, 500, 1}, {12, 10, 1}}, true},
    {"too many were slow", {{5, 500, 1}, {11, 10, 1}}, false},
    {"neither quick nor slow", {{100, 70, 1}}, false},
    {"quick, then in between: it stays", {{12, 10, 1}, {100, 70, 1}}, true},
    {"three slow ones are forgiven", {{12, 10, 1}, {3, 200, 1}}, true},
    {"four are not", {{12, 10, 1}, {4, 200, 1}}, false},
    {"forgiven ones are forgotten", {{12, 10, 1}, {3, 200, 1}, {16, 10, 1}, {3, 200, 1}}, true},
    {"one stall is enough", {{40, 10, 1}, {1, 1500, 1}}, false},
    {"after a stall it starts anew", {{40, 10, 1}, {1, 1500, 1}, {16 + 11, 10, 1}}, false},
    {"and may come back", {{40, 10, 1}, {1, 1500, 1}, {16 + 12, 10, 1}}, true},
    {"later after the second stall",
     {{40, 10, 1}, {1, 1500, 1}, {28, 10, 1}, {1, 1500, 1}, {32 + 11, 10, 1}},
     false},
    {"but it comes back",
     {{40, 10, 1}, {1, 1500, 1}, {28, 10, 1}, {1, 1500, 1}, {32 + 12, 10, 1}},
     true},
    {"a stall long ago is forgotten",
     {{40, 10, 1}, {1, 1500, 1}, {28 + 4096, 10, 1}, {1, 1500, 1}, {16 + 12, 10, 1}},
     true},
    {"after slow ones that are no stalls likewise",
     {{12, 10, 1}, {4, 200, 1}, {16 + 11, 10, 1}},
     false},
    {"and they may come back", {{12, 10, 1}, {4, 200, 1}, {16 + 12, 10, 1}}, true},
    {"slow before it was quick does not count", {{4, 500, 1}, {12, 10, 1}, {3, 200, 1}}, true},
    {"several in the time of one that is not slow", {{12, 90, 8}}, true},
    {"several that are slow", {{16, 110, 2}}, false},
    {"more than a worker runs together: its share", {{12, 390, 8}}, true},
    {"a share that is not quick", {{16, 410, 8}}, false},
    {"shares of a stall", {{16, 1001, 1000}}, false},
    {"large batches after a stall", {{12, 10, 8}, {1, 1500, 8}, {16 + 12, 300, 120}}, true},
    {"a batch that was too large is not held against it", {{12, 10, 1}, {100, 200, 8}}, true},
    {"but a stall is", {{12, 10, 1}, {1, 1500, 8}}, false},
};

static void exec_time_stats_history_decides_fast_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct exec_time_stats exec_time_stats;
        exec_time_stats_init(&exec_time_stats);
        for (const struct run *run = rows[i].runs; run->n > 0; run++) {
            for (int n = 0; n < run->n; n++) {
                exec_time_stats_add(&exec_time_stats, run->us * 1000, run->together, NULL);
            }
        }
        if (exec_time_stats_is_fast(&exec_time_stats) != rows[i].cheap) {
            fail_msg("%s", rows[i].why);
        }
    }
}

static uint64_t cpu_ns(void) {
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* What an execution that seemed to take 5 ms did in truth. */
static void be_stopped(void) {
}

static void use_the_cpu(void) {
    uint64_t end = cpu_ns() + 2 * EXEC_STALL_NS;
    while (cpu_ns() < end) {
    }
}

static void wait_for_something(void) {
    struct timespec shortly = {.tv_nsec = 1000};
    long before = exec_thread_use_read().n_waits;
    while (exec_thread_use_read().n_waits == before) { /* a sleep may end before the thread waits */
        assert_int_equal(clock_nanosleep(CLOCK_MONOTONIC, 0, &shortly, NULL), 0);
    }
}

/* Soon after a stall the CPU time of executions is measured. */
static void exec_time_stats_stopped_thread_is_not_slow(void **state) {
    static const struct {
        void (*run)(void);
        bool is_first, is_fast;
    } cases[] = {
        {be_stopped, true, false}, /* nothing is measured before */
        {be_stopped, false, true},
        {use_the_cpu, false, false},
        {wait_for_something, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct exec_time_stats stats;
        exec_time_stats_init(&stats);
        for (int n = 0; n < 40; n++) {
            exec_time_stats_add(&stats, 10000, 1, NULL);
            if (n == 20 && !cases[i].is_first) {
                exec_time_stats_add(&stats, 1500000, 1, NULL);
            }
        }
        for (int n = 0; n < 40; n++) {
            exec_time_stats_add(&stats, 10000, 1, NULL);
        }
        assert_true(exec_time_stats_is_fast(&stats));
        struct exec_thread_use before = exec_time_stats_begin(&stats);
        assert_int_equal(before.known, !cases[i].is_first);
        cases[i].run();
        exec_time_stats_add(&stats, 5000000, 1, &before);
        assert_int_equal(exec_time_stats_is_fast(&stats), cases[i].is_fast);
    }
}

/* The limit of rows after each execution. */
static void exec_time_stats_max_rows_adapts_by_table(void **state) {
    static const struct {
        uint64_t rows, us, limit;
    } steps[] = {
        {1, 60, 1}, /* nothing is known of more rows */
        {1, 10, 2},
        {2, 10, 4},   /* twice as many as were quick */
        {3, 10, 4},   /* the limit was not reached */
        {64, 300, 4}, /* on an instance: says nothing about fewer */
        {64, 90, 64}, /* on an instance: as many take no longer than they may */
        {64, 110, 32},
        {64, 110, 32},
        {32, 80, 32}, /* too long */
        {32, 49, 64},
        {20, 150, 10},
        {10, 200, 5},
        {5, 200, 2},
        {2, 200, 1},
        {1, 200, 1},                  /* never 0 */
        {UINT32_MAX, 10, UINT32_MAX}, /* never more than can be counted */
        {UINT64_MAX, 10, UINT64_MAX},
    };
    struct exec_time_stats exec_time_stats;
    (void)state;
    exec_time_stats_init(&exec_time_stats);
    assert_int_equal(exec_time_stats_max_rows(&exec_time_stats), 1);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        exec_time_stats_add(&exec_time_stats, steps[i].us * 1000, steps[i].rows, NULL);
        assert_int_equal(exec_time_stats_max_rows(&exec_time_stats), steps[i].limit);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exec_time_stats_history_decides_fast_by_table),
        cmocka_unit_test(exec_time_stats_stopped_thread_is_not_slow),
        cmocka_unit_test(exec_time_stats_max_rows_adapts_by_table),
    };
    return cmocka_run_group_tests_name("serve/scheduler/exec_time_stats", tests, NULL, NULL);
}
