/* Counting from many threads: nothing is lost when they end, and a reader may look at any time. */
#include "base/metric.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_THREADS = 8, N_ADDS = 20000, MIP_CODES = 6 };

static void *count(void *argument) {
    (void)argument;
    for (int i = 0; i < N_ADDS; i++) {
        metric_add(METRIC_REQUESTS_TOTAL, 1);
        metric_add(METRIC_CONNECTIONS, i % 2 == 0 ? 3 : -3);
    }
    return NULL;
}

static void threads_lose_nothing(void **state) {
    pthread_t threads[N_THREADS];
    int64_t before = metric_read(METRIC_REQUESTS_TOTAL);
    int64_t seen = before;
    (void)state;
    metric_add(METRIC_REQUESTS_TOTAL, 5);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N_THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
        }
        for (int i = 0; i < 200; i++) {
            int64_t now = metric_read(METRIC_REQUESTS_TOTAL);
            assert_true(now >= seen); /* a counter only goes up, also while threads end */
            seen = now;
        }
        for (int i = 0; i < N_THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
    }
    assert_int_equal(metric_read(METRIC_REQUESTS_TOTAL) - before, 5 + 2 * N_THREADS * N_ADDS);
    assert_int_equal(metric_read(METRIC_CONNECTIONS), 0);
}

static void printed_in_the_text_format(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    (void)state;
    metric_add(METRIC_OUTPUTS_HELD, -2);
    buf_init(&out, arena, 0);
    metric_print(&out);
    buf_add_char(&out, '\0');
    assert_false(out.failed);
    assert_non_null(strstr(out.data,
                           "# HELP sluice_outputs_held Backend outputs not yet released.\n"
                           "# TYPE sluice_outputs_held gauge\n"
                           "sluice_outputs_held -2\n"));
    assert_non_null(strstr(out.data, "# TYPE sluice_requests_total counter\n"));
    /* A family is introduced once, each of its rows has its labels. */
    assert_non_null(strstr(out.data, "# TYPE sluice_mip_errors_total counter\n"
                                     "sluice_mip_errors_total{code=\"PROTOCOL\"} 0\n"
                                     "sluice_mip_errors_total{code=\"SUBTYPE\"} 0\n"));
    int rows = 0, families = 0;
    for (const char *at = out.data; *at != '\0'; at = strchr(at, '\n') + 1) {
        rows += *at != '#';
        families += strncmp(at, "# TYPE ", 7) == 0;
    }
    assert_int_equal(rows, METRIC_COUNT_);
    assert_int_equal(families, METRIC_COUNT_ - (MIP_CODES - 1));
    metric_add(METRIC_OUTPUTS_HELD, 2);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(printed_in_the_text_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
