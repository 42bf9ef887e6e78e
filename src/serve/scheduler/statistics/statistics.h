/* What a model version has done since it was loaded: requests and their times, executions, batch
 * sizes. Counting takes no lock and no locked instruction: each worker counts the requests that it
 * brings back, each instance its executions, in cells of their own; who reads adds them up.
 *
 * A request counts when it was queued, or began, and has ended: those refused before (a bad shape,
 * a full queue) are nowhere here. Times are of requests that succeeded:
 *
 *     queued ── queue ── started ── input ── infer ── output ── finished
 *
 * Where the backend does not say when it computes, all of an execution is `infer`. In a batch each
 * request has the times of the whole batch. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_STATISTICS_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/metric/histogram.h"
#include "core/base/status.h"

struct model_version;

/* Why a request failed, in the reference server's words. */
enum statistics_reason {
    STATISTICS_REJECTED, /* it waited longer than it may */
    STATISTICS_CANCELED,
    STATISTICS_BACKEND,
    STATISTICS_OTHER,
    STATISTICS_REASONS,
};

enum { STATISTICS_MAX_SIZES = 1024 }; /* batch sizes that are told apart */

/* How often, and how long in all. */
struct statistics_time {
    uint64_t count;
    uint64_t ns;
};

/* The parts of an execution, or of all of a kind; with one count. */
struct statistics_compute {
    uint64_t input_ns, infer_ns, output_ns;
};

/* The executions of one batch size. */
struct statistics_batch {
    uint64_t size;
    uint64_t count;
    struct statistics_compute compute;
};

/* The answers of a decoupled model that stand in one place. */
struct statistics_response {
    struct statistics_time infer;  /* since the answer before it, or the beginning */
    struct statistics_time output; /* until it was taken over, waiting for a slow reader included */
    struct statistics_time success, fail; /* both together */
    struct statistics_time empty;         /* of those that only said that nothing more follows */
    struct statistics_time cancel;        /* of those that nobody waited for any more */
};

/* One instance, now. */
struct statistics_instance {
    uint64_t since_ns;       /* of the execution it is in, on the monotonic clock; 0: it rests */
    uint64_t requests, size; /* in that execution */
    uint64_t executions;     /* since it was opened */
    uint64_t busy_ns;        /* in all of them */
};

struct model_statistics {
    uint64_t loaded_ns;         /* how long loading took */
    uint64_t last_inference_ms; /* since 1970: the last execution; 0: none */
    uint64_t n_inferences;      /* a request of batch n counts n; those that succeeded */
    uint64_t n_executions;
    uint64_t busy_ns;                     /* of all instances, in executions that are over */
    struct statistics_time success, fail; /* from the queue on */
    struct statistics_time queue;         /* of those that succeeded */
    uint64_t n_computed;                  /* of those, that ran: the others were in the cache */
    struct statistics_compute compute;    /* of those */
    bool caches;                          /* its answers are kept */
    struct statistics_time cache_hit;     /* answers found, and how long looking took */
    struct statistics_time cache_miss;    /* not found: looking, and storing */
    uint64_t failed[STATISTICS_REASONS];
    uint64_t n_queued, n_running; /* requests, now */
    uint64_t n_instances, n_busy;
    struct metric_distribution request_time, queue_time, compute_time; /* of successes */
    struct metric_distribution batch_size;                             /* of executions */
};

/* What the version's counters say; never stops anybody, so that parts may be a request apart.
 * Thread: any, while `version` is referenced. */
void model_version_statistics(struct model_version *version, struct model_statistics *out);
/* Executions by batch size, ascending, those that happened; sizes over STATISTICS_MAX_SIZES are in
 * none. Returns: how many; `*out` is in `arena`, NULL when out of memory. Thread: any. */
size_t model_version_batches(struct model_version *version, struct arena *arena,
                             struct statistics_batch **out);
/* Answers by their place, of a decoupled model: the first 4096. Returns: how many places; `*out` is
 * in `arena`, NULL when out of memory. Thread: any. */
size_t model_version_responses(struct model_version *version, struct arena *arena,
                               struct statistics_response **out);
/* The instance `i` of n_instances. Thread: any. */
void model_version_instance(struct model_version *version, size_t i,
                            struct statistics_instance *out);
/* The gauges alone: cheaper than all of it. Thread: any. */
void model_version_gauges(struct model_version *version, uint64_t *n_queued, uint64_t *n_running,
                          uint64_t *n_instances);

/* "REJECTED" */
const char *statistics_reason_name(enum statistics_reason reason);

#endif
