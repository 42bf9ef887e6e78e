/* The histogram compared with exact quantiles of the same values, at every magnitude. */
#include "program/loadgen/report/histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

#include "core/base/random.h"

enum { N = 20000 };

static struct bench_histogram *fresh(void) {
    struct bench_histogram *histogram = calloc(1, sizeof(*histogram));
    assert_non_null(histogram);
    return histogram;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The histogram's value is within `share` of the exact one. */
static void assert_near(uint64_t is, uint64_t exact, double share) {
    double off = fabs((double)is - (double)exact);
    if (off > share * (double)exact) {
        fail_msg("%llu is not within %g of %llu", (unsigned long long)is, share,
                 (unsigned long long)exact);
    }
}

/* Distributions of very different widths. */
static uint64_t draw(struct prng *random, unsigned kind) {
    double unit = prng_double(random);
    switch (kind) {
    case 0:
        return (uint64_t)(unit * 200); /* below and just above the exact buckets */
    case 1:
        return 50000 + (uint64_t)(unit * 1000);
    case 2:
        return (uint64_t)(-log(1 - unit) * 1e6);
    default:
        return (uint64_t)exp(unit * 30); /* 1 ns to 3 hours */
    }
}

static void histogram_quantiles_are_near_exact(void **state) {
    (void)state;
    static const double quantiles[] = {0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    uint64_t *values = malloc(N * sizeof(*values));
    assert_non_null(values);
    for (unsigned kind = 0; kind < 4; kind++) {
        struct bench_histogram *histogram = fresh();
        struct prng random = {.state = kind};
        double sum = 0;
        for (size_t i = 0; i < N; i++) {
            values[i] = draw(&random, kind);
            sum += (double)values[i];
            bench_histogram_add(histogram, values[i]);
        }
        qsort(values, N, sizeof(*values), by_value);
        for (size_t i = 0; i < sizeof(quantiles) / sizeof(*quantiles); i++) {
            size_t rank = (size_t)ceil(quantiles[i] * N);
            uint64_t exact = values[rank > 0 ? rank - 1 : 0];
            assert_near(bench_histogram_quantile(histogram, quantiles[i]), exact, 0.004);
        }
        assert_int_equal(bench_histogram_quantile(histogram, 1), values[N - 1]);
        assert_int_equal(histogram->min_ns, values[0]);
        assert_near((uint64_t)bench_histogram_mean(histogram), (uint64_t)(sum / N), 1e-6);
        free(histogram);
    }
    free(values);
}

static void histogram_few_values_have_quantiles(void **state) {
    (void)state;
    struct bench_histogram *histogram = fresh();
    assert_int_equal(bench_histogram_quantile(histogram, 0.5), 0);
    assert_true(bench_histogram_mean(histogram) == 0);
    assert_true(bench_histogram_deviation(histogram) == 0);
    bench_histogram_add(histogram, 1234567);
    assert_int_equal(bench_histogram_quantile(histogram, 0), 1234567);
    assert_int_equal(bench_histogram_quantile(histogram, 0.5), 1234567);
    assert_int_equal(bench_histogram_quantile(histogram, 1), 1234567);
    bench_histogram_add(histogram, 3);
    assert_int_equal(bench_histogram_quantile(histogram, 0.5), 3);
    assert_int_equal(bench_histogram_quantile(histogram, 0.51), 1234567);
    free(histogram);
}

static void histogram_deviation_is_exact(void **state) {
    (void)state;
    struct bench_histogram *histogram = fresh();
    for (unsigned i = 0; i < 100; i++) {
        bench_histogram_add(histogram, i % 2 ? 900 : 1100);
    }
    assert_near((uint64_t)bench_histogram_deviation(histogram), 100, 0.01);
    free(histogram);
}

static void histogram_large_values_go_to_last_bucket(void **state) {
    (void)state;
    struct bench_histogram *histogram = fresh();
    struct bench_bucket bucket;
    unsigned index = 0;
    bench_histogram_add(histogram, UINT64_MAX / 4);
    bench_histogram_add(histogram, (UINT64_C(1) << BENCH_HISTOGRAM_TOP_BITS) - 1);
    assert_true(bench_histogram_next(histogram, &index, &bucket));
    assert_int_equal(bucket.count, 2);
    assert_int_equal(bucket.to_ns, UINT64_C(1) << BENCH_HISTOGRAM_TOP_BITS);
    assert_false(bench_histogram_next(histogram, &index, &bucket));
    assert_int_equal(bench_histogram_quantile(histogram, 1), UINT64_MAX / 4);
    free(histogram);
}

/* Buckets cover the values without a gap; each is at most 1/128 of its values wide. */
static void histogram_buckets_are_listed(void **state) {
    (void)state;
    struct bench_histogram *histogram = fresh();
    for (uint64_t ns = 0; ns < 3000; ns++) {
        bench_histogram_add(histogram, ns);
    }
    struct bench_bucket bucket;
    uint64_t end = 0;
    for (unsigned index = 0; bench_histogram_next(histogram, &index, &bucket);) {
        assert_int_equal(bucket.from_ns, end);
        end = bucket.to_ns;
        assert_true(bucket.to_ns - bucket.from_ns <= 1 + bucket.from_ns / 128);
        if (bucket.to_ns <= 3000) {
            assert_int_equal(bucket.count, bucket.to_ns - bucket.from_ns);
        }
    }
    assert_true(end >= 3000);
    free(histogram);
}

static void histogram_merge_equals_adding(void **state) {
    (void)state;
    struct bench_histogram *all = fresh(), *merged = fresh(), *live = fresh();
    struct bench_histogram *parts[3];
    struct prng random = {.state = 7};
    for (size_t k = 0; k < 3; k++) {
        parts[k] = fresh();
    }
    for (size_t i = 0; i < 1000; i++) {
        uint64_t ns = draw(&random, 3);
        bench_histogram_add(all, ns);
        bench_histogram_add(parts[i % 2], ns); /* the third stays empty */
    }
    for (size_t k = 0; k < 3; k++) {
        bench_histogram_merge(merged, parts[k]);
        bench_histogram_merge_counts(live, parts[k]);
    }
    assert_int_equal(bench_histogram_total(merged), 1000);
    assert_int_equal(merged->min_ns, all->min_ns);
    assert_int_equal(merged->max_ns, all->max_ns);
    assert_int_equal(merged->sum_ns, all->sum_ns);
    for (double q = 0; q <= 1; q += 0.05) {
        assert_int_equal(bench_histogram_quantile(merged, q), bench_histogram_quantile(all, q));
    }
    bench_histogram_subtract_counts(live, parts[0]);
    assert_int_equal(bench_histogram_total(live), 500);
    assert_near(bench_histogram_quantile(live, 0.5), bench_histogram_quantile(parts[1], 0.5), 0.01);
    for (size_t k = 0; k < 3; k++) {
        free(parts[k]);
    }
    free(all);
    free(merged);
    free(live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histogram_quantiles_are_near_exact),
        cmocka_unit_test(histogram_few_values_have_quantiles),
        cmocka_unit_test(histogram_deviation_is_exact),
        cmocka_unit_test(histogram_large_values_go_to_last_bucket),
        cmocka_unit_test(histogram_buckets_are_listed),
        cmocka_unit_test(histogram_merge_equals_adding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
