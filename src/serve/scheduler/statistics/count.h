/* Counting, for the files of this room: what statistics.h reads. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_COUNT_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_COUNT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "serve/scheduler/call.h"
#include "serve/scheduler/per_worker.h"
#include "serve/scheduler/statistics/statistics.h"

/* What became of an answer. */
enum statistics_outcome {
    RESPONSE_SUCCESS,
    RESPONSE_FAIL,
    RESPONSE_EMPTY,  /* it only said that nothing more follows */
    RESPONSE_CANCEL, /* nobody waited for it any more */
    RESPONSE_OUTCOMES,
};

enum { STATISTICS_RESPONSES = 4096, STATISTICS_RESPONSE_BLOCK = 64 };

struct statistics_response_block;

/* Zeroed memory is ready to count. */
struct statistics_responses {
    _Atomic(struct statistics_response_block *)
        blocks[STATISTICS_RESPONSES / STATISTICS_RESPONSE_BLOCK];
};

/* The answer at `place`, from 0, has been given: it was `infer_ns` since the one before it (or
 * since the execution began), and took `output_ns` to be taken over, waits for a slow reader
 * included. Places from STATISTICS_RESPONSES on are not counted. Thread: any. */
void statistics_response_add(struct statistics_responses *responses, uint64_t place,
                             enum statistics_outcome outcome, uint64_t infer_ns,
                             uint64_t output_ns);
/* Returns: of which places there is something; *out is in `arena`, NULL when out of memory. */
size_t statistics_responses_read(const struct statistics_responses *responses, struct arena *arena,
                                 struct statistics_response **out);
/* Nobody counts any more. */
void statistics_responses_free(struct statistics_responses *responses);

enum { STATISTICS_LINE_BYTES = 64 };

/* The executions of one batch size. */
struct statistics_cells {
    metric_cell count, input_ns, infer_ns, output_ns;
};

/* The executions of an instance. Who has claimed it writes. */
struct statistics_executions {
    alignas(STATISTICS_LINE_BYTES) metric_cell since_ns; /* of the one that runs; 0: none does */
    metric_cell n_calls, size;
    uint64_t compute_start_ns, compute_end_ns; /* of it, as the backend says; 0: it says nothing */
    metric_cell count, busy_ns, last_ns;
    struct metric_histogram sizes;
    struct statistics_cells *by_size; /* 1 + n_sizes of them */
};

/* The requests that one worker has brought back. */
struct statistics_shard {
    struct per_worker per_worker;
    alignas(STATISTICS_LINE_BYTES) struct metric_histogram request, queue, compute;
    metric_cell n_inferences, input_ns, infer_ns, output_ns;
    metric_cell failed[STATISTICS_REASONS], failed_ns;
    metric_cell n_hits, hit_ns, n_misses, miss_ns; /* in the response cache */
};

struct statistics {
    uint64_t loaded_ns;                    /* set when it has been loaded */
    _Atomic int64_t wall_ns;               /* 1970 on the monotonic clock, as last looked at */
    struct statistics_executions *running; /* one for each instance */
    size_t n_instances;
    size_t n_sizes; /* of batches, that are told apart */
    struct statistics_responses responses;
    struct per_worker_table shards;
    struct statistics_shard
        spare; /* for a worker that has no memory for its own: others write there
                                      too, and some counts are lost */
};

/* Zeroed memory is ready to count requests; this makes room for the executions, in `arena`.
 * `max_batch_size` 0: the model does not batch. Returns: ST_NO_MEMORY. */
enum status statistics_init(struct statistics *statistics, struct arena *arena, size_t n_instances,
                            uint64_t max_batch_size, struct error *err)
    __attribute__((warn_unused_result));
void statistics_fini(struct statistics *statistics);

/* A call that was queued, or began, has ended. Thread: call->worker's. */
void statistics_count_call(struct statistics *statistics, const struct call *call);
/* An execution begins, with so many rows in all; and it is over. Calls of it may be gone then.
 * Thread: who has claimed the instance. */
void statistics_execution_begin(struct statistics *statistics, size_t instance,
                                struct call *const *calls, size_t n, uint64_t started_ns);
void statistics_execution_end(struct statistics *statistics, size_t instance, uint64_t ended_ns);
/* The backend says when it computed for calls of the execution that runs. Thread: the one that
 * executes. */
void statistics_computed(struct statistics *statistics, size_t instance,
                         const sluice_request *const *requests, size_t n, uint64_t began_ns,
                         uint64_t ended_ns);

#endif
