/* Counting from many threads: nothing is lost when they end, and a reader may read at any time. */
#include "core/base/metric/metric.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_THREADS = 8, N_ADDS = 20000 };

static void *count(void *argument) {
    (void)argument;
    for (int i = 0; i < N_ADDS; i++) {
        metric_add(METRIC_REQUESTS_TOTAL, 1);
        metric_add(METRIC_CONNECTIONS, i % 2 == 0 ? 3 : -3);
    }
    return NULL;
}

static void metric_add_from_threads_loses_nothing(void **state) {
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

/* The whole page as text in `arena`. */
static const char *printed(struct arena *arena, enum metric_format format) {
    struct buf out;
    struct metric_text text = {.out = &out, .format = format};
    buf_init(&out, arena, 0);
    metric_print(&text, NULL);
    buf_add_char(&out, '\0');
    assert_false(out.failed);
    return out.data;
}

static void metric_print_writes_prometheus_text(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    metric_add(METRIC_OUTPUTS_HELD, -2);
    const char *text = printed(arena, METRIC_FORMAT_PROMETHEUS);
    assert_non_null(strstr(text, "# HELP sluice_outputs_held Backend outputs not yet released.\n"
                                 "# TYPE sluice_outputs_held gauge\n"
                                 "sluice_outputs_held -2\n"));
    assert_non_null(strstr(text, "# TYPE sluice_requests_total counter\n"));
    /* A family has one head, and each of its rows has its labels. */
    assert_non_null(strstr(text, "# TYPE sluice_mip_errors_total counter\n"
                                 "sluice_mip_errors_total{code=\"PROTOCOL\"} 0\n"
                                 "sluice_mip_errors_total{code=\"SUBTYPE\"} 0\n"));
    int rows = 0;
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        rows += *at != '#';
    }
    assert_int_equal(rows, METRIC_COUNT_); /* and no error so far */
    metric_add(METRIC_OUTPUTS_HELD, 2);
    arena_free(arena);
}

static void metric_print_writes_each_family_header_once(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    char name[128];
    (void)state;
    for (int format = 0; format < 2; format++) {
        const char *text = printed(arena, (enum metric_format)format);
        for (const char *at = text; (at = strstr(at, "# TYPE ")); at++) {
            size_t n = strcspn(at + 7, " ");
            snprintf(name, sizeof(name), "# TYPE %.*s ", (int)n, at + 7);
            assert_null(strstr(at + 1, name));
        }
    }
    arena_free(arena);
}

static void metric_add_error_counts_by_protocol_and_reason(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    metric_add_error(METRIC_HTTP, ST_BAD_SHAPE);
    metric_add_error(METRIC_MIP, ST_QUEUE_FULL);
    metric_add_error(METRIC_MIP, ST_QUEUE_FULL);
    const char *text = printed(arena, METRIC_FORMAT_PROMETHEUS);
    assert_null(strstr(text, "sluice_errors_total{protocol=\"grpc\",reason=\"BAD_SHAPE\"}"));
    assert_non_null(strstr(text,
                           "# TYPE sluice_errors_total counter\n"
                           "sluice_errors_total{protocol=\"http\",reason=\"BAD_SHAPE\"} 1\n"
                           "sluice_errors_total{protocol=\"mip\",reason=\"QUEUE_FULL\"} 2\n"));
    arena_free(arena);
}

/* Names and help texts of metric.def contain no character that a format would have to escape. */
static void metric_rows_need_no_escaping(void **state) {
    static const struct {
        const char *exposed, *help;
    } rows[] = {
#define METRIC(name, kind, exposed, help) {exposed, help},
#define FAMILY(name, kind, exposed, help) {exposed, help},
#include "core/base/metric/metric.def"
#undef METRIC
#undef FAMILY
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t n = strspn(rows[i].exposed, "abcdefghijklmnopqrstuvwxyz_0123456789");
        assert_true(rows[i].exposed[n] == '\0' || rows[i].exposed[n] == '{');
        assert_null(strpbrk(rows[i].help, "\\\n\""));
        assert_int_equal(rows[i].help[strlen(rows[i].help) - 1], '.');
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metric_add_from_threads_loses_nothing),
        cmocka_unit_test(metric_print_writes_prometheus_text),
        cmocka_unit_test(metric_print_writes_each_family_header_once),
        cmocka_unit_test(metric_add_error_counts_by_protocol_and_reason),
        cmocka_unit_test(metric_rows_need_no_escaping),
    };
    return cmocka_run_group_tests_name("core/base/metric/metric", tests, NULL, NULL);
}
