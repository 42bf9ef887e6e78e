/* Histograms. The bucket's index is the number of the value's bits, so that no search is needed. */
#include "core/base/metric/histogram.h"

enum { NS_PER_US = 1000, BITS = 64 };

unsigned metric_bucket(uint64_t value) {
    if (value <= 1) {
        return 0;
    }
    unsigned bucket = (unsigned)(BITS - __builtin_clzll(value - 1));
    return bucket < METRIC_BOUNDS ? bucket : METRIC_BOUNDS;
}

static void bucket_add(struct metric_histogram *histogram, unsigned bucket, uint64_t value) {
    metric_cell_add(&histogram->buckets[bucket], 1);
    metric_cell_add(&histogram->sum, value);
}

static uint64_t us_of(uint64_t ns) {
    return ns / NS_PER_US + (ns % NS_PER_US != 0);
}

void metric_histogram_add_ns(struct metric_histogram *histogram, uint64_t ns) {
    bucket_add(histogram, metric_bucket(us_of(ns)), ns);
}

void metric_histogram_add(struct metric_histogram *histogram, uint64_t size) {
    bucket_add(histogram, metric_bucket(size), size);
}

void metric_histogram_read(const struct metric_histogram *histogram,
                           struct metric_distribution *out) {
    for (unsigned i = 0; i < METRIC_BUCKETS; i++) {
        uint64_t n = metric_cell_read(&histogram->buckets[i]);
        out->buckets[i] += n;
        out->count += n;
    }
    out->sum += metric_cell_read(&histogram->sum);
}

void metric_distribution_add(struct metric_distribution *sum,
                             const struct metric_distribution *part) {
    for (unsigned i = 0; i < METRIC_BUCKETS; i++) {
        sum->buckets[i] += part->buckets[i];
    }
    sum->count += part->count;
    sum->sum += part->sum;
}

/* ---- bounds of a histogram's own ------------------------------------------------------------- */

void metric_scale_add(const struct metric_scale *scale, metric_cell *cells, uint64_t value) {
    metric_scale_add_many(scale, cells, value, 1);
}

void metric_scale_add_many(const struct metric_scale *scale, metric_cell *cells, uint64_t value,
                           uint64_t n) {
    uint64_t measured = scale->unit == METRIC_UNIT_ITEMS ? value : us_of(value);
    unsigned low = 0, high = scale->n; /* the first bound that is not below the value */
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (scale->bounds[middle] < measured) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    metric_cell_add(&cells[low], n);
    metric_cell_add(&cells[scale->n + 1], value * n);
}

void metric_scale_read(const struct metric_scale *scale, const metric_cell *cells, uint64_t *out) {
    for (unsigned i = 0; i < metric_scale_cells(scale); i++) {
        out[i] += metric_cell_read(&cells[i]);
    }
}
