/* Statistics of a model version since it was loaded: requests and their times, executions, batch
 * sizes. Counters are per worker and per instance, written without a lock or locked instruction,
 * and summed up on reading.
 *
 * A request counts when it was queued, or started, and has ended; requests refused before (a bad
 * shape, a full queue) are not counted. Times are of successful requests:
 *
 *     queued ── queue ── started ── input ── infer ── output ── finished
 *
 * Where the backend reports no compute times, all of an execution is `infer`. Each request of a
 * batch has the times of the whole batch. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_STATISTICS_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/metric/histogram.h"
#include "core/base/status.h"

struct call;
struct model_version;

/* Why a request failed, in Triton's terms. */
enum statistics_reason {
    STATISTICS_REJECTED, /* queue timeout or deadline */
    STATISTICS_CANCELLED,
    STATISTICS_BACKEND,
    STATISTICS_OTHER,
    STATISTICS_REASONS,
};

enum { STATISTICS_MAX_SIZES = 1024 }; /* batch sizes counted separately */

/* A count and a total time. */
struct statistics_time {
    uint64_t count;
    uint64_t ns;
};

/* The parts of an execution, or their sums over a count. */
struct statistics_compute {
    uint64_t input_ns, infer_ns, output_ns;
};

/* The executions of one batch size. */
struct statistics_batch {
    uint64_t size;
    uint64_t count;
    struct statistics_compute compute;
};

/* The responses of a decoupled model with one index. */
struct statistics_response {
    struct statistics_time infer;         /* since the previous response, or the start */
    struct statistics_time output;        /* in `respond`, including back pressure */
    struct statistics_time success, fail; /* infer and output together */
    struct statistics_time empty;         /* final markers without outputs */
    struct statistics_time cancel;        /* of cancelled calls */
};

/* The current state of one instance. */
struct statistics_instance {
    uint64_t since_ns;       /* start of the current execution, monotonic; 0: idle */
    uint64_t requests, size; /* in the current execution */
    uint64_t executions;     /* since it was opened */
    uint64_t busy_ns;        /* total */
};

struct model_statistics {
    uint64_t loaded_ns;         /* time to load */
    uint64_t last_inference_ms; /* start of the last execution since 1970; 0: none */
    uint64_t n_inferences;      /* successful requests; a request of n rows counts n */
    uint64_t n_executions;
    uint64_t busy_ns;                     /* of all instances, in finished executions */
    struct statistics_time success, fail; /* from the queue on */
    struct statistics_time queue;         /* of successful requests */
    uint64_t n_computed;                  /* successful requests that were executed, not cached */
    struct statistics_compute compute;    /* of executed requests */
    bool caches;                          /* the response cache is enabled */
    struct statistics_time cache_hit;     /* hits, and lookup time */
    struct statistics_time cache_miss;    /* misses, and time for lookup and store */
    uint64_t failed[STATISTICS_REASONS];
    uint64_t n_queued, n_running; /* requests at the moment */
    uint64_t n_instances, n_busy;
    struct metric_distribution request_time, queue_time, compute_time; /* of successful requests */
    struct metric_distribution batch_size;                             /* of executions */
};

/* Reads the counters without blocking writers, so the parts may differ by a request.
 * Thread: any, while `version` is referenced. */
void model_version_statistics(struct model_version *version, struct model_statistics *out);
/* Executions by batch size, ascending, sizes without executions omitted; sizes above
 * STATISTICS_MAX_SIZES are not counted. Returns: how many; `*out` is in `arena`, NULL when out of
 * memory. Thread: any. */
size_t model_version_batches(struct model_version *version, struct arena *arena,
                             struct statistics_batch **out);
/* Responses of a decoupled model by index, the first 4096. Returns: how many indices; `*out` is in
 * `arena`, NULL when out of memory. Thread: any. */
size_t model_version_responses(struct model_version *version, struct arena *arena,
                               struct statistics_response **out);
/* The state of instance `i` of n_instances. Thread: any. */
void model_version_instance(struct model_version *version, size_t i,
                            struct statistics_instance *out);
/* Reads the gauges only, which is cheaper. Thread: any. */
void model_version_gauges(struct model_version *version, uint64_t *n_queued, uint64_t *n_running,
                          uint64_t *n_instances);

/* The parts of a call that has ended: of an ensemble the sums over its members. Thread: the call's
 * worker, until it is released. */
struct statistics_compute statistics_compute_of(const struct call *call);

/* "REJECTED" */
const char *statistics_reason_name(enum statistics_reason reason);

#endif
