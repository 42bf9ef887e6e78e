/* A histogram of latencies with a fixed relative error. */
#include "load.h"

static unsigned bucket_of(uint64_t ns) {
    if (ns < (1u << HISTOGRAM_SUB_BITS)) {
        return (unsigned)ns;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    unsigned shift = top - HISTOGRAM_SUB_BITS;
    unsigned sub = (unsigned)(ns >> shift) & ((1u << HISTOGRAM_SUB_BITS) - 1u);
    return ((shift + 1) << HISTOGRAM_SUB_BITS) + sub;
}

static uint64_t value_of(unsigned bucket) {
    unsigned row = bucket >> HISTOGRAM_SUB_BITS;
    uint64_t sub = bucket & ((1u << HISTOGRAM_SUB_BITS) - 1u);
    if (row == 0) {
        return sub;
    }
    return (sub + (1u << HISTOGRAM_SUB_BITS)) << (row - 1);
}

void histogram_add(struct histogram *histogram, uint64_t ns) {
    histogram->counts[bucket_of(ns)]++;
    histogram->total++;
}

uint64_t histogram_quantile(const struct histogram *histogram, double share) {
    uint64_t wanted = (uint64_t)(share * (double)histogram->total);
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen > wanted) {
            return value_of(i);
        }
    }
    return 0;
}
