/* Counters of a model version, written by the scheduler and read through statistics.h. Internal to
 * serve/scheduler. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_COUNT_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_COUNT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "serve/scheduler/call_run.h"
#include "serve/scheduler/per_worker.h"
#include "serve/scheduler/statistics/latency.h"
#include "serve/scheduler/statistics/recent.h"
#include "serve/scheduler/statistics/statistics.h"

/* The outcome of one response of a decoupled model. */
enum statistics_outcome {
    RESPONSE_SUCCESS,
    RESPONSE_FAIL,
    RESPONSE_EMPTY,  /* final marker without outputs */
    RESPONSE_CANCEL, /* the call was cancelled */
    RESPONSE_OUTCOMES,
};

enum { STATISTICS_RESPONSES = 4096, STATISTICS_RESPONSE_BLOCK = 64 };

struct statistics_response_block;

/* Zeroed memory is ready to count. */
struct statistics_responses {
    _Atomic(struct statistics_response_block *)
        blocks[STATISTICS_RESPONSES / STATISTICS_RESPONSE_BLOCK];
};

/* Counts the response with index `place`, from 0: `infer_ns` since the one before it (or since the
 * execution began), and `output_ns` in `respond`, including back pressure. Indices from
 * STATISTICS_RESPONSES on are not counted. Thread: any. */
void statistics_response_add(struct statistics_responses *responses, uint64_t place,
                             enum statistics_outcome outcome, uint64_t infer_ns,
                             uint64_t output_ns);
/* Returns: the number of indices with counts; *out is in `arena`, NULL when out of memory. */
size_t statistics_responses_read(const struct statistics_responses *responses, struct arena *arena,
                                 struct statistics_response **out);
/* Frees the counters, which are no longer used. */
void statistics_responses_free(struct statistics_responses *responses);

enum { STATISTICS_LINE_BYTES = 64 };

/* The executions of one batch size. */
struct statistics_cells {
    metric_cell count, input_ns, infer_ns, output_ns;
};

/* The executions of an instance. The thread that claimed it writes. */
struct statistics_executions {
    /* start of the current execution; 0: idle */
    alignas(STATISTICS_LINE_BYTES) metric_cell since_ns;
    metric_cell n_calls, size;
    uint64_t compute_start_ns, compute_end_ns; /* of the current execution, reported by the
                                                  backend; 0: not reported */
    metric_cell count, busy_ns, last_ns;
    struct metric_histogram sizes;
    struct statistics_cells *by_size; /* 1 + n_sizes of them */
};

/* The requests that one worker delivered. */
struct statistics_shard {
    struct per_worker per_worker;
    alignas(STATISTICS_LINE_BYTES) struct metric_histogram request, queue, compute;
    metric_cell n_inferences, input_ns, infer_ns, output_ns;
    metric_cell failed[STATISTICS_REASONS], failed_ns;
    metric_cell n_hits, hit_ns, n_misses, miss_ns; /* response cache */
    struct statistics_executions *executions;      /* of an ensemble, on this worker; NULL: none */
};

struct statistics {
    uint64_t loaded_ns;      /* how long loading took */
    _Atomic int64_t wall_ns; /* the wall clock minus the monotonic clock, when last read */
    struct statistics_executions *running; /* one per instance */
    size_t n_instances;
    size_t n_sizes; /* batch sizes counted separately */
    struct statistics_responses responses;
    struct statistics_recent recent;
    struct per_worker_table shards;
    struct latency latency;
    /* for workers whose allocation failed: shared, so some counts may be lost */
    struct statistics_shard spare;
};

/* Zeroed memory can count requests; this allocates the counters of executions in `arena`.
 * `n_instances` 0: an ensemble, whose executions are counted by the worker. `max_batch_size` 0: the
 * model does not batch. Returns: ST_NO_MEMORY. */
enum status statistics_init(struct statistics *statistics, struct arena *arena, size_t n_instances,
                            uint64_t max_batch_size, struct error *err) SLUICE_MUST_USE;
void statistics_fini(struct statistics *statistics);

/* Counts a call that ended after it was queued or started. Thread: call->worker's. */
void statistics_count_call(struct statistics *statistics, const struct call *call);
/* Counts the execution of an ensemble's call, which has ended without an error. Thread:
 * call->worker's. */
void statistics_count_execution(struct statistics *statistics, const struct call *call);
/* Begins and ends an execution; when it ends its calls may be freed. Thread: the one that claimed
 * the instance. */
void statistics_execution_begin(struct statistics *statistics, size_t instance,
                                struct call *const *calls, size_t n, uint64_t started_ns);
void statistics_execution_end(struct statistics *statistics, size_t instance, uint64_t ended_ns);
/* Records the compute times that the backend reports for calls of the current execution. Thread:
 * the executing one. */
void statistics_computed(struct statistics *statistics, size_t instance,
                         const sluice_request *const *requests, size_t n, uint64_t began_ns,
                         uint64_t ended_ns);

#endif
