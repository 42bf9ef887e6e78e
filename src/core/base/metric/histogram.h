/* A histogram with fixed buckets, each twice as wide as the one before: of times, whose buckets are
 * in microseconds, or of plain sizes; or with bounds of its own (struct metric_scale). One thread
 * at a time adds, with plain loads and stores; any thread reads at any time, and may see one value
 * more in a bucket than in the sum.
 *
 * Zeroed memory is an empty histogram. */
#ifndef SLUICE_CORE_BASE_METRIC_HISTOGRAM_H
#define SLUICE_CORE_BASE_METRIC_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    METRIC_BOUNDS = 26, /* bucket i counts values of at most 1 << i: up to 33.5 s, or 33,554,432 */
    METRIC_BUCKETS = METRIC_BOUNDS + 1, /* the last one counts larger values */
};

/* A number that one thread at a time adds to. */
typedef _Atomic uint64_t metric_cell;

static inline void metric_cell_add(metric_cell *cell, uint64_t n) {
    uint64_t value = atomic_load_explicit(cell, memory_order_relaxed);
    atomic_store_explicit(cell, value + n, memory_order_relaxed);
}

static inline uint64_t metric_cell_read(const metric_cell *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

struct metric_histogram {
    metric_cell buckets[METRIC_BUCKETS];
    metric_cell sum; /* of the values: in nanoseconds, or the sizes themselves */
};

/* A copy of a histogram's counts, or the sum of several. */
struct metric_distribution {
    uint64_t buckets[METRIC_BUCKETS];
    uint64_t count;
    uint64_t sum;
};

/* Returns: the bucket of `value`, the first whose bound is not below it. */
unsigned metric_bucket(uint64_t value);
/* Adds one value; times are in nanoseconds, sizes are plain. Thread: one at a time. */
void metric_histogram_add_ns(struct metric_histogram *histogram, uint64_t ns);
void metric_histogram_add(struct metric_histogram *histogram, uint64_t size);
/* Adds the histogram's counts to `out`. */
void metric_histogram_read(const struct metric_histogram *histogram,
                           struct metric_distribution *out);
void metric_distribution_add(struct metric_distribution *sum,
                             const struct metric_distribution *part);

/* ---- bounds of a histogram's own ------------------------------------------------------------- */

/* The unit of a histogram's bounds. */
enum metric_unit {
    METRIC_UNIT_SECONDS,      /* bounds are in microseconds, values and sums in nanoseconds */
    METRIC_UNIT_MILLISECONDS, /* the same, printed as milliseconds; of a struct metric_scale */
    METRIC_UNIT_ITEMS,
};

/* The bounds of a histogram whose names and bounds another project has fixed. Its cells are in
 * memory of the caller: a count for each bound, one for larger values, and the sum, all zero at
 * first. */
struct metric_scale {
    enum metric_unit unit;
    unsigned n; /* number of bounds */
    const uint64_t *bounds;
};

/* Returns: the number of cells. */
static inline unsigned metric_scale_cells(const struct metric_scale *scale) {
    return scale->n + 2;
}
/* Adds a value, in nanoseconds or items, once or `n` times. Thread: one at a time. */
void metric_scale_add(const struct metric_scale *scale, metric_cell *cells, uint64_t value);
void metric_scale_add_many(const struct metric_scale *scale, metric_cell *cells, uint64_t value,
                           uint64_t n);
/* Adds the cells to `out`. Thread: any. */
void metric_scale_read(const struct metric_scale *scale, const metric_cell *cells, uint64_t *out);

#endif
