/* Latencies of a model version as Triton's --metrics-config has them: a histogram of the times to
 * the first response, and summaries, whose quantiles are of the last minute. Off, they cost a
 * branch. Counters are per worker, written by that worker alone, and summed up on reading; the
 * summaries take 86 KiB for each worker that has answered a request of the version.
 *
 * A value is off by at most 3 %: each power of two of nanoseconds has 16 buckets. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_LATENCY_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_LATENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/metric/histogram.h"
#include "serve/scheduler/per_worker.h"

struct call;
struct model_version;
struct statistics_compute;

enum { LATENCY_MAX_QUANTILES = 32 };

/* What --metrics-config selects. */
struct latency_options {
    bool hides_counters; /* of times, as nv_inference_queue_duration_us */
    bool has_histograms, has_summaries;
    double quantiles[LATENCY_MAX_QUANTILES]; /* 0 to 1 */
    size_t n_quantiles;
};

enum latency_kind {
    LATENCY_REQUEST,
    LATENCY_QUEUE,
    LATENCY_INPUT,
    LATENCY_INFER,
    LATENCY_OUTPUT,
    LATENCY_CACHE_HIT,
    LATENCY_CACHE_MISS,
    LATENCY_KINDS,
};

enum {
    LATENCY_SUB_BITS = 4,   /* buckets of each power of two: 16 */
    LATENCY_FIRST_BIT = 10, /* what takes less than 1 us is in the first bucket */
    LATENCY_LAST_BIT = 42,  /* 73 minutes: longer ones are in the last bucket */
    LATENCY_BUCKETS = (LATENCY_LAST_BIT - LATENCY_FIRST_BIT) << LATENCY_SUB_BITS,
    LATENCY_WINDOWS = 6, /* of 12 seconds: five whole ones, and the current one */
};

/* Of a version. Zeroed memory counts nothing. */
struct latency {
    const struct latency_options *options; /* NULL: none */
    struct metric_scale first_response;    /* bounds in microseconds */
    struct per_worker_table shards;
};

/* `bounds` of the histogram, in microseconds, ascending; n 0: Triton's. They must outlive it. */
void latency_init(struct latency *latency, const struct latency_options *options,
                  const uint64_t *bounds, size_t n);
void latency_fini(struct latency *latency);

static inline bool latency_is_on(const struct latency *latency) {
    return latency->options != NULL;
}

/* A successful call that was executed; or whose answer was, or was not, in the response cache.
 * Thread: call->worker's. */
void latency_count_success(struct latency *latency, const struct call *call,
                           const struct statistics_compute *compute);
void latency_count_lookup(struct latency *latency, const struct call *call, bool was_hit);

/* ---- reading; thread: any, while `version` is referenced ------------------------------------- */

/* Returns: the bounds of the histogram; adds metric_scale_cells counts to `out`, which has space
 * for LATENCY_MAX_BOUNDS + 2. */
enum { LATENCY_MAX_BOUNDS = 100 };
const struct metric_scale *model_version_first_responses(struct model_version *version,
                                                         uint64_t *out);
/* Adds the counts of the last minute to `counts`, which has LATENCY_BUCKETS. */
void model_version_latencies(struct model_version *version, enum latency_kind kind, uint64_t now_ns,
                             uint64_t *counts);
/* Returns: the value that a share `quantile` of the counted ones does not exceed, in nanoseconds;
 * NaN: none was counted. */
double latency_quantile_ns(const uint64_t *counts, double quantile);

#endif
