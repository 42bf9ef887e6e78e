/* Histograms: the bucket of each value, sums, quantiles, and reading while another thread adds. */
#include "core/base/metric/histogram.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void metric_bucket_includes_upper_bound(void **state) {
    static const struct {
        uint64_t value;
        unsigned bucket;
    } cases[] = {
        {0, 0},
        {1, 0},
        {2, 1},
        {3, 2},
        {4, 2},
        {5, 3},
        {1024, 10},
        {1025, 11},
        {UINT64_C(1) << 25, 25},
        {(UINT64_C(1) << 25) + 1, 26},
        {UINT64_MAX, 26},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(metric_bucket(cases[i].value), cases[i].bucket);
    }
}

static void metric_histogram_time_is_bucketed_in_microseconds(void **state) {
    struct metric_histogram histogram = {0};
    struct metric_distribution seen = {{0}, 0, 0};
    (void)state;
    metric_histogram_add_ns(&histogram, 0);
    metric_histogram_add_ns(&histogram, 1000);
    metric_histogram_add_ns(&histogram, 1001); /* over 1 us */
    metric_histogram_add_ns(&histogram, UINT64_C(60000000000));
    metric_histogram_read(&histogram, &seen);
    assert_int_equal(seen.buckets[0], 2);
    assert_int_equal(seen.buckets[1], 1);
    assert_int_equal(seen.buckets[METRIC_BOUNDS], 1);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.sum, UINT64_C(60000002001));
}

static void metric_histogram_read_accumulates(void **state) {
    struct metric_histogram one = {0}, other = {0};
    struct metric_distribution seen = {{0}, 0, 0};
    (void)state;
    metric_histogram_add(&one, 8);
    metric_histogram_add(&other, 8);
    metric_histogram_add(&other, 9);
    metric_histogram_read(&one, &seen);
    metric_histogram_read(&other, &seen);
    assert_int_equal(seen.buckets[3], 2);
    assert_int_equal(seen.buckets[4], 1);
    assert_int_equal(seen.sum, 25);
}

enum { N_ADDS = 200000 };

static void *add_many(void *argument) {
    struct metric_histogram *histogram = argument;
    for (int i = 0; i < N_ADDS; i++) {
        metric_histogram_add(histogram, 3);
    }
    return NULL;
}

static void metric_histogram_concurrent_read_never_decreases(void **state) {
    struct metric_histogram histogram = {0};
    struct metric_distribution seen = {{0}, 0, 0};
    uint64_t before = 0;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, add_many, &histogram), 0);
    while (seen.count < N_ADDS) {
        seen = (struct metric_distribution){{0}, 0, 0};
        metric_histogram_read(&histogram, &seen);
        assert_true(seen.count >= before && seen.buckets[2] == seen.count);
        before = seen.count;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(metric_cell_read(&histogram.sum), 3 * N_ADDS);
}

static void metric_scale_add_includes_upper_bound(void **state) {
    static const uint64_t bounds[] = {1, 8, 16};
    static const struct metric_scale scale = {METRIC_UNIT_ITEMS, 3, bounds};
    static const uint64_t values[] = {0, 1, 2, 8, 9, 16, 17, 1000};
    static const uint64_t expected[] = {2, 2, 2, 2, 1053};
    metric_cell cells[5] = {0};
    uint64_t counts[5] = {0};
    (void)state;
    assert_int_equal(metric_scale_cells(&scale), 5);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        metric_scale_add(&scale, cells, values[i]);
    }
    metric_scale_read(&scale, cells, counts);
    assert_memory_equal(counts, expected, sizeof(expected));
    metric_scale_read(&scale, cells, counts);
    assert_int_equal(counts[0], 4);
}

static void metric_scale_time_is_bucketed_in_microseconds(void **state) {
    static const uint64_t bounds[] = {1, 8};
    static const struct metric_scale scale = {METRIC_UNIT_SECONDS, 2, bounds};
    metric_cell cells[4] = {0};
    (void)state;
    metric_scale_add(&scale, cells, 1000);
    metric_scale_add(&scale, cells, 1001);
    metric_scale_add(&scale, cells, 8001);
    assert_int_equal(metric_cell_read(&cells[0]), 1);
    assert_int_equal(metric_cell_read(&cells[1]), 1);
    assert_int_equal(metric_cell_read(&cells[2]), 1);
    assert_int_equal(metric_cell_read(&cells[3]), 10002);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metric_bucket_includes_upper_bound),
        cmocka_unit_test(metric_histogram_time_is_bucketed_in_microseconds),
        cmocka_unit_test(metric_histogram_read_accumulates),
        cmocka_unit_test(metric_histogram_concurrent_read_never_decreases),
        cmocka_unit_test(metric_scale_add_includes_upper_bound),
        cmocka_unit_test(metric_scale_time_is_bucketed_in_microseconds),
    };
    return cmocka_run_group_tests_name("core/base/metric/histogram", tests, NULL, NULL);
}
