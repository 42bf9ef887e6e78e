/* A latency histogram: every power of two has 128 equal buckets, so that values are exact to 0.4
 * % at any size, in 41 KiB, for any number of values. Minimum, maximum and mean are exact.
 *
 * Thread: one writes (add); others may read meanwhile, and see a part of the values (quantile,
 * merge). All else: one thread. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_HISTOGRAM_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    BENCH_HISTOGRAM_BITS = 7,      /* 128 buckets in each power of two */
    BENCH_HISTOGRAM_TOP_BITS = 47, /* 39 hours in nanoseconds; longer latencies count as that */
    BENCH_HISTOGRAM_BUCKETS = (BENCH_HISTOGRAM_TOP_BITS - BENCH_HISTOGRAM_BITS + 1)
                              << BENCH_HISTOGRAM_BITS,
};

/* Zeroed memory is an empty histogram. */
struct bench_histogram {
    _Atomic uint64_t counts[BENCH_HISTOGRAM_BUCKETS];
    _Atomic uint64_t total;
    uint64_t min_ns, max_ns, sum_ns;
    double sum_of_squares;
};

void bench_histogram_add(struct bench_histogram *histogram, uint64_t ns);
/* Adds `from` with its minimum, maximum and sums. No thread may be writing `from`. */
void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from);
/* Adds only the counts of `from`, which may be written meanwhile: for quantiles of a running
 * step. */
void bench_histogram_merge_counts(struct bench_histogram *into, const struct bench_histogram *from);
/* Subtracts the counts of an earlier state of the same histogram. */
void bench_histogram_subtract_counts(struct bench_histogram *from,
                                     const struct bench_histogram *earlier);

/* Returns: the value that a share `quantile` (0..1) of all values does not exceed (nearest
 * rank); 0 when empty. */
uint64_t bench_histogram_quantile(const struct bench_histogram *histogram, double quantile);
uint64_t bench_histogram_total(const struct bench_histogram *histogram);
/* Mean and standard deviation, in nanoseconds; 0 when empty. */
double bench_histogram_mean(const struct bench_histogram *histogram);
double bench_histogram_deviation(const struct bench_histogram *histogram);

/* A bucket holds the values from `from_ns` (inclusive) to `to_ns` (exclusive). */
struct bench_bucket {
    uint64_t from_ns, to_ns, count;
};
/* Finds the next non-empty bucket from *index on; *index moves past it. Returns: whether there
 * was one. */
int bench_histogram_next(const struct bench_histogram *histogram, unsigned *index,
                         struct bench_bucket *out);

#endif
