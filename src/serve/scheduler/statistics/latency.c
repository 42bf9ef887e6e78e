/* Windows: the slot of a time is cleared by the first value that falls into a later window, so that
 * nothing runs while nothing is counted. */
#include "serve/scheduler/statistics/latency.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "serve/scheduler/version.h"

enum { NS_PER_US = 1000 };
static const uint64_t WINDOW_NS = UINT64_C(12000000000);

struct latency_window {
    _Atomic uint64_t number; /* of the window, from 1; 0: nothing was counted */
    _Atomic uint32_t counts[LATENCY_BUCKETS];
};

struct latency_summary {
    struct latency_window windows[LATENCY_WINDOWS];
};

/* What one worker has counted. */
struct latency_shard {
    struct per_worker per_worker;
    struct latency_summary *summaries; /* LATENCY_KINDS of them; NULL: none */
    metric_cell *first_response;       /* NULL: none */
};

/* ---- creating -------------------------------------------------------------------------------- */

void latency_init(struct latency *latency, const struct latency_options *options,
                  const uint64_t *bounds, size_t n) {
    static const uint64_t usual[] = {100000, 500000, 2000000, 5000000};
    bool is_on = options && (options->has_histograms || options->has_summaries);
    latency->options = is_on ? options : NULL;
    latency->first_response =
        (struct metric_scale){.unit = METRIC_UNIT_MILLISECONDS,
                              .n = n > 0 ? (unsigned)n : (unsigned)(sizeof(usual) / sizeof(*usual)),
                              .bounds = n > 0 ? bounds : usual};
}

void latency_fini(struct latency *latency) {
    per_worker_table_fini(&latency->shards);
}

/* Returns: NULL when out of memory: what would be counted is lost. */
static struct latency_shard *shard_new(const struct latency *latency) {
    const struct latency_options *options = latency->options;
    size_t n_summaries = options->has_summaries ? LATENCY_KINDS : 0;
    size_t n_cells = options->has_histograms ? metric_scale_cells(&latency->first_response) : 0;
    struct latency_shard *shard =
        calloc(1, sizeof(*shard) + n_summaries * sizeof(struct latency_summary) +
                      n_cells * sizeof(metric_cell));
    if (shard) {
        struct latency_summary *summaries = (struct latency_summary *)(shard + 1);
        shard->summaries = n_summaries > 0 ? summaries : NULL;
        shard->first_response = n_cells > 0 ? (metric_cell *)(summaries + n_summaries) : NULL;
    }
    return shard;
}

static struct latency_shard *shard_of(struct latency *latency, const struct worker *worker) {
    struct latency_shard *shard = (struct latency_shard *)per_worker_find(&latency->shards, worker);
    if (!shard) {
        shard = shard_new(latency);
        if (shard) {
            per_worker_add(&latency->shards, worker, &shard->per_worker);
        }
    }
    return shard;
}

/* ---- counting -------------------------------------------------------------------------------- */

static size_t bucket_of(uint64_t ns) {
    if (ns < UINT64_C(1) << LATENCY_FIRST_BIT) {
        return 0;
    }
    if (ns >= UINT64_C(1) << LATENCY_LAST_BIT) {
        return LATENCY_BUCKETS - 1;
    }
    unsigned top = 63 - (unsigned)__builtin_clzll(ns);
    size_t within = (size_t)(ns >> (top - LATENCY_SUB_BITS)) & ((1u << LATENCY_SUB_BITS) - 1);
    return ((size_t)(top - LATENCY_FIRST_BIT) << LATENCY_SUB_BITS) + within;
}

static void summary_add(struct latency_summary *summary, uint64_t now_ns, uint64_t ns) {
    uint64_t number = now_ns / WINDOW_NS + 1;
    struct latency_window *window = &summary->windows[number % LATENCY_WINDOWS];
    if (atomic_load_explicit(&window->number, memory_order_relaxed) < number) {
        for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
            atomic_store_explicit(&window->counts[i], 0, memory_order_relaxed);
        }
        atomic_store_explicit(&window->number, number, memory_order_release);
    }
    _Atomic uint32_t *count = &window->counts[bucket_of(ns)];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void count_first_response(const struct latency *latency, struct latency_shard *shard,
                                 const struct call *call) {
    uint64_t first_ns = call->run->first_answered_ns;
    first_ns = first_ns > call->queued_ns ? first_ns : call->finished_ns;
    if (shard->first_response) {
        metric_scale_add(&latency->first_response, shard->first_response,
                         first_ns - call->queued_ns);
    }
}

void latency_count_success(struct latency *latency, const struct call *call,
                           const struct statistics_compute *compute) {
    struct latency_shard *shard = shard_of(latency, call->worker);
    if (!shard) {
        return;
    }
    count_first_response(latency, shard, call);
    if (shard->summaries) {
        uint64_t now_ns = call->finished_ns;
        struct latency_summary *all = shard->summaries;
        summary_add(&all[LATENCY_REQUEST], now_ns, now_ns - call->queued_ns);
        summary_add(&all[LATENCY_QUEUE], now_ns, call->started_ns - call->queued_ns);
        summary_add(&all[LATENCY_INPUT], now_ns, compute->input_ns);
        summary_add(&all[LATENCY_INFER], now_ns, compute->infer_ns);
        summary_add(&all[LATENCY_OUTPUT], now_ns, compute->output_ns);
    }
}

void latency_count_lookup(struct latency *latency, const struct call *call, bool was_hit) {
    struct latency_shard *shard = shard_of(latency, call->worker);
    if (!shard) {
        return;
    }
    if (was_hit) {
        count_first_response(latency, shard, call);
    }
    if (shard->summaries) {
        struct latency_summary *all = shard->summaries;
        if (was_hit) {
            summary_add(&all[LATENCY_REQUEST], call->finished_ns,
                        call->finished_ns - call->queued_ns);
            summary_add(&all[LATENCY_QUEUE], call->finished_ns, 0);
        }
        summary_add(&all[was_hit ? LATENCY_CACHE_HIT : LATENCY_CACHE_MISS], call->finished_ns,
                    call->run->cache_ns);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* As per_worker_next. */
static const struct latency_shard *next_shard(struct latency *latency,
                                              const struct latency_shard *shard, size_t *slot) {
    return (const struct latency_shard *)per_worker_next(&latency->shards,
                                                         shard ? &shard->per_worker : NULL, slot);
}

const struct metric_scale *model_version_first_responses(struct model_version *version,
                                                         uint64_t *out) {
    struct latency *latency = &version->statistics.latency;
    const struct latency_shard *shard = NULL;
    for (size_t slot = 0; (shard = next_shard(latency, shard, &slot));) {
        if (shard->first_response) {
            metric_scale_read(&latency->first_response, shard->first_response, out);
        }
    }
    return &latency->first_response;
}

static void read_window(const struct latency_window *window, uint64_t now, uint64_t *counts) {
    uint64_t number = atomic_load_explicit(&window->number, memory_order_acquire);
    if (number == 0 || number > now + 1 || number + LATENCY_WINDOWS <= now) {
        return;
    }
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        counts[i] += atomic_load_explicit(&window->counts[i], memory_order_relaxed);
    }
}

void model_version_latencies(struct model_version *version, enum latency_kind kind, uint64_t now_ns,
                             uint64_t *counts) {
    struct latency *latency = &version->statistics.latency;
    uint64_t now = now_ns / WINDOW_NS + 1;
    const struct latency_shard *shard = NULL;
    for (size_t slot = 0; (shard = next_shard(latency, shard, &slot));) {
        for (size_t i = 0; shard->summaries && i < LATENCY_WINDOWS; i++) {
            read_window(&shard->summaries[kind].windows[i], now, counts);
        }
    }
}

/* The middle of a bucket. */
static double value_of(size_t bucket) {
    unsigned top = LATENCY_FIRST_BIT + (unsigned)(bucket >> LATENCY_SUB_BITS);
    double within = (double)(bucket & ((1u << LATENCY_SUB_BITS) - 1)) + 0.5;
    return (double)(UINT64_C(1) << top) * (1 + within / (1u << LATENCY_SUB_BITS));
}

double latency_quantile_ns(const uint64_t *counts, double quantile) {
    uint64_t total = 0, below = 0;
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        total += counts[i];
    }
    if (total == 0) {
        return NAN;
    }
    double rank = quantile * (double)total;
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        below += counts[i];
        if (below > 0 && (double)below >= rank) {
            return i == 0 ? 0 : value_of(i);
        }
    }
    return value_of(LATENCY_BUCKETS - 1);
}
