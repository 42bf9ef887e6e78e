/* Histograms and summaries of latencies: near values, windows that pass, and first responses. */
#include "serve/scheduler/statistics/latency.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/compiler.h"
#include "serve/scheduler/version.h"

static const uint64_t US_NS = 1000, MS_NS = 1000000;
static const uint64_t SECOND_NS = UINT64_C(1000000000);

static const struct latency_options options = {.has_histograms = true, .has_summaries = true};

struct versions {
    struct model_version *version;
    struct call call;
    struct call_run run;
};

static void open_versions(struct versions *self) {
    size_t n_bytes = (sizeof(struct model_version) + 63) / 64 * 64;
    *self = (struct versions){.version = aligned_alloc(64, n_bytes)};
    assert_non_null(self->version);
    memset(self->version, 0, n_bytes);
    latency_init(&self->version->statistics.latency, &options, NULL, 0);
    self->call.run = &self->run;
}

static void close_versions(struct versions *self) {
    latency_fini(&self->version->statistics.latency);
    free(self->version);
}

/* A call of so many nanoseconds that ends at `end_ns`. */
static void count(struct versions *self, uint64_t end_ns, uint64_t ns) {
    struct statistics_compute compute = {.infer_ns = ns};
    self->call.queued_ns = self->call.started_ns = end_ns - ns;
    self->call.finished_ns = end_ns;
    latency_count_success(&self->version->statistics.latency, &self->call, &compute);
}

static double quantile(struct versions *self, uint64_t now_ns, double share) {
    uint64_t counts[LATENCY_BUCKETS] = {0};
    model_version_latencies(self->version, LATENCY_REQUEST, now_ns, counts);
    return latency_quantile_ns(counts, share);
}

static void quantiles_are_within_three_percent(void **state) {
    struct versions self;
    (void)state;
    open_versions(&self);
    assert_true(isnan(quantile(&self, SECOND_NS, 0.5)));
    for (uint64_t i = 1; i <= 1000; i++) {
        count(&self, 100 * SECOND_NS, i * 10 * US_NS);
    }
    for (int percent = 1; percent <= 100; percent++) {
        double wanted = percent * 1e5, got = quantile(&self, 100 * SECOND_NS, percent / 100.0);
        if (fabs(got - wanted) > wanted * 0.035) {
            fail_msg("%d %%: %f, not %f", percent, got, wanted);
        }
    }
    close_versions(&self);
}

static void values_of_any_size_are_counted(void **state) {
    static const uint64_t sizes_ns[] = {
        0, 1, 1023, 1024, UINT64_C(1) << 41, UINT64_C(1) << 42, UINT64_C(1) << 50};
    struct versions self;
    uint64_t now_ns = UINT64_C(1) << 52;
    (void)state;
    open_versions(&self);
    for (size_t i = 0; i < sizeof(sizes_ns) / sizeof(*sizes_ns); i++) {
        count(&self, now_ns, sizes_ns[i]);
    }
    assert_true(quantile(&self, now_ns, 0) == 0);
    assert_true(quantile(&self, now_ns, 1) > 4e12);
    close_versions(&self);
}

static void summary_forgets_after_its_windows(void **state) {
    struct versions self;
    (void)state;
    open_versions(&self);
    count(&self, 600 * SECOND_NS, 5 * MS_NS);
    assert_true(!isnan(quantile(&self, 600 * SECOND_NS, 0.5)));
    assert_true(!isnan(quantile(&self, 659 * SECOND_NS, 0.5)));
    assert_true(isnan(quantile(&self, 672 * SECOND_NS, 0.5)));
    count(&self, 672 * SECOND_NS, 50 * MS_NS); /* in the same slot as the first */
    assert_true(quantile(&self, 672 * SECOND_NS, 0) > 40.0 * (double)MS_NS);
    close_versions(&self);
}

static void first_response_is_that_of_a_stream(void **state) {
    struct versions self;
    (void)state;
    open_versions(&self);
    self.run.first_answered_ns = 700 * SECOND_NS - 4 * SECOND_NS + 200 * MS_NS;
    count(&self, 700 * SECOND_NS, 4 * SECOND_NS);
    self.run.first_answered_ns = 0;
    count(&self, 700 * SECOND_NS, 4 * SECOND_NS);
    uint64_t counts[LATENCY_MAX_BOUNDS + 2] = {0};
    const struct metric_scale *scale = model_version_first_responses(self.version, counts);
    assert_int_equal(scale->n, 4);
    assert_int_equal(counts[1], 1); /* up to 500 ms */
    assert_int_equal(counts[3], 1); /* up to 5 s */
    assert_int_equal(counts[5], 4 * SECOND_NS + 200 * MS_NS);
    close_versions(&self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_three_percent),
        cmocka_unit_test(values_of_any_size_are_counted),
        cmocka_unit_test(summary_forgets_after_its_windows),
        cmocka_unit_test(first_response_is_that_of_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
