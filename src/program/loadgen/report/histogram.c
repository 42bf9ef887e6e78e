/* The log-linear histogram. Buckets are ordered by value: first 128 of one nanosecond each, then
 * 128 for each power of two. */
#include "program/loadgen/report/histogram.h"

#include <math.h>
#include <stddef.h>

enum { ROW = 1u << BENCH_HISTOGRAM_BITS };

static uint64_t counter_get(const _Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

/* There is one writer, so no read-modify-write is needed. */
static void counter_add(_Atomic uint64_t *value, uint64_t by) {
    atomic_store_explicit(value, counter_get(value) + by, memory_order_relaxed);
}

static unsigned bucket_of(uint64_t ns) {
    if (ns < ROW) {
        return (unsigned)ns;
    }
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - BENCH_HISTOGRAM_BITS;
    unsigned bucket = ((shift + 1) << BENCH_HISTOGRAM_BITS) + ((unsigned)(ns >> shift) & (ROW - 1));
    return bucket < BENCH_HISTOGRAM_BUCKETS ? bucket : BENCH_HISTOGRAM_BUCKETS - 1;
}

static uint64_t bucket_from(unsigned bucket) {
    unsigned row = bucket >> BENCH_HISTOGRAM_BITS;
    uint64_t place = bucket & (ROW - 1);
    return row == 0 ? place : (place + ROW) << (row - 1);
}

void bench_histogram_add(struct bench_histogram *histogram, uint64_t ns) {
    counter_add(&histogram->counts[bucket_of(ns)], 1);
    if (counter_get(&histogram->total) == 0 || ns < histogram->min_ns) {
        histogram->min_ns = ns;
    }
    if (ns > histogram->max_ns) {
        histogram->max_ns = ns;
    }
    histogram->sum_ns += ns;
    histogram->sum_of_squares += (double)ns * (double)ns;
    counter_add(&histogram->total, 1);
}

void bench_histogram_merge_counts(struct bench_histogram *into,
                                  const struct bench_histogram *from) {
    uint64_t total = 0;
    for (size_t i = 0; i < BENCH_HISTOGRAM_BUCKETS; i++) {
        uint64_t count = counter_get(&from->counts[i]);
        counter_add(&into->counts[i], count);
        total += count;
    }
    counter_add(&into->total, total);
}

void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from) {
    if (counter_get(&from->total) == 0) {
        return;
    }
    if (counter_get(&into->total) == 0 || from->min_ns < into->min_ns) {
        into->min_ns = from->min_ns;
    }
    if (from->max_ns > into->max_ns) {
        into->max_ns = from->max_ns;
    }
    into->sum_ns += from->sum_ns;
    into->sum_of_squares += from->sum_of_squares;
    bench_histogram_merge_counts(into, from);
}

void bench_histogram_subtract_counts(struct bench_histogram *from,
                                     const struct bench_histogram *earlier) {
    for (size_t i = 0; i < BENCH_HISTOGRAM_BUCKETS; i++) {
        counter_add(&from->counts[i], 0 - counter_get(&earlier->counts[i]));
    }
    counter_add(&from->total, 0 - counter_get(&earlier->total));
}

/* The middle of a bucket, limited to the exact minimum and maximum, which are known unless
 * another thread is writing. */
static uint64_t value_of(const struct bench_histogram *histogram, unsigned bucket) {
    uint64_t from = bucket_from(bucket), to = bucket_from(bucket + 1);
    uint64_t middle = from + (to - from) / 2;
    if (histogram->max_ns > 0 && middle > histogram->max_ns) {
        return histogram->max_ns;
    }
    return middle < histogram->min_ns ? histogram->min_ns : middle;
}

uint64_t bench_histogram_quantile(const struct bench_histogram *histogram, double quantile) {
    uint64_t total = counter_get(&histogram->total);
    uint64_t rank = (uint64_t)ceil(quantile * (double)total);
    uint64_t seen = 0;
    rank = rank < 1 ? 1 : rank;
    if (rank >= total && histogram->max_ns > 0) {
        return histogram->max_ns;
    }
    for (unsigned i = 0; i < BENCH_HISTOGRAM_BUCKETS; i++) {
        seen += counter_get(&histogram->counts[i]);
        if (seen >= rank) {
            return value_of(histogram, i);
        }
    }
    return histogram->max_ns;
}

uint64_t bench_histogram_total(const struct bench_histogram *histogram) {
    return counter_get(&histogram->total);
}

double bench_histogram_mean(const struct bench_histogram *histogram) {
    uint64_t total = counter_get(&histogram->total);
    return total ? (double)histogram->sum_ns / (double)total : 0;
}

double bench_histogram_deviation(const struct bench_histogram *histogram) {
    uint64_t total = counter_get(&histogram->total);
    double mean = bench_histogram_mean(histogram);
    double variance = total ? histogram->sum_of_squares / (double)total - mean * mean : 0;
    return variance > 0 ? sqrt(variance) : 0; /* rounding may give a negative value */
}

int bench_histogram_next(const struct bench_histogram *histogram, unsigned *index,
                         struct bench_bucket *out) {
    for (; *index < BENCH_HISTOGRAM_BUCKETS; ++*index) {
        uint64_t count = counter_get(&histogram->counts[*index]);
        if (count > 0) {
            *out = (struct bench_bucket){bucket_from(*index), bucket_from(*index + 1), count};
            ++*index;
            return 1;
        }
    }
    return 0;
}
