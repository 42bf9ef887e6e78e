/* Counting. A cell has one writer at a time: a request's cells the worker that brings it back, an
 * execution's whoever has claimed the instance. So a count is a load and a store, on a line that
 * nobody else writes. */
#include "serve/scheduler/statistics/count.h"

#include <stdlib.h>

/* ---- room ------------------------------------------------------------------------------------ */

enum status statistics_init(struct statistics *statistics, struct arena *arena, size_t n_instances,
                            uint64_t max_batch_size, struct error *err) {
    uint64_t most = max_batch_size > 0 ? max_batch_size : 1;
    size_t n_sizes = most < STATISTICS_MAX_SIZES ? (size_t)most : STATISTICS_MAX_SIZES;
    struct statistics_executions *running = arena_alloc_aligned(
        arena, n_instances * sizeof(*running), alignof(struct statistics_executions));
    bool room = running != NULL;
    for (size_t i = 0; room && i < n_instances; i++) {
        running[i] = (struct statistics_executions){0};
        running[i].by_size = arena_calloc(arena, n_sizes + 1, sizeof(*running[i].by_size));
        room = running[i].by_size != NULL;
    }
    if (!room) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the statistics of %zu instances",
                         n_instances);
    }
    statistics->running = running;
    statistics->n_instances = n_instances;
    statistics->n_sizes = n_sizes;
    return ST_OK;
}

void statistics_fini(struct statistics *statistics) {
    per_worker_table_fini(&statistics->shards);
    statistics_responses_free(&statistics->responses);
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct statistics_shard *shard_new(struct per_worker_table *shards,
                                          const struct worker *worker) {
    struct statistics_shard *shard = aligned_alloc(STATISTICS_LINE_BYTES, sizeof(*shard));
    if (shard) {
        *shard = (struct statistics_shard){0};
        per_worker_add(shards, worker, &shard->per_worker);
    }
    return shard;
}

/* The worker's own cells. Only that worker makes them. */
static struct statistics_shard *shard_of(struct statistics *statistics,
                                         const struct worker *worker) {
    struct statistics_shard *shard =
        (struct statistics_shard *)per_worker_find(&statistics->shards, worker);
    if (!shard) {
        shard = shard_new(&statistics->shards, worker);
    }
    return shard ? shard : &statistics->spare;
}

static enum statistics_reason reason_of(const struct call *call) {
    enum status status = call->response.error.status;
    if (status == ST_CANCELLED) {
        return STATISTICS_CANCELED;
    }
    if (call->started_ns > 0) {
        return status == ST_NO_MEMORY ? STATISTICS_OTHER : STATISTICS_BACKEND;
    }
    return status == ST_QUEUE_TIMEOUT || status == ST_DEADLINE_EXCEEDED ? STATISTICS_REJECTED
                                                                        : STATISTICS_OTHER;
}

/* What can't be, a backend that said when it computed and was wrong, counts as computing. */
static struct statistics_compute parts_of(uint64_t started_ns, uint64_t compute_start_ns,
                                          uint64_t compute_end_ns, uint64_t finished_ns) {
    if (compute_start_ns < started_ns || compute_end_ns < compute_start_ns ||
        finished_ns < compute_end_ns) {
        return (struct statistics_compute){.infer_ns = finished_ns - started_ns};
    }
    return (struct statistics_compute){.input_ns = compute_start_ns - started_ns,
                                       .infer_ns = compute_end_ns - compute_start_ns,
                                       .output_ns = finished_ns - compute_end_ns};
}

/* It was in no queue and never ran. */
static void count_hit(struct statistics_shard *shard, const struct call *call) {
    metric_histogram_add_ns(&shard->request, call->finished_ns - call->queued_ns);
    metric_histogram_add_ns(&shard->queue, 0);
    metric_cell_add(&shard->n_hits, 1);
    metric_cell_add(&shard->hit_ns, call->cache_ns);
}

static void count_success(struct statistics_shard *shard, const struct call *call) {
    struct statistics_compute compute =
        parts_of(call->started_ns, call->compute_start_ns, call->compute_end_ns, call->finished_ns);
    metric_histogram_add_ns(&shard->request, call->finished_ns - call->queued_ns);
    metric_histogram_add_ns(&shard->queue, call->started_ns - call->queued_ns);
    metric_histogram_add_ns(&shard->compute, call->finished_ns - call->started_ns);
    metric_cell_add(&shard->n_inferences, call->abi.batch);
    metric_cell_add(&shard->input_ns, compute.input_ns);
    metric_cell_add(&shard->infer_ns, compute.infer_ns);
    metric_cell_add(&shard->output_ns, compute.output_ns);
}

void statistics_count_call(struct statistics *statistics, const struct call *call) {
    struct statistics_shard *shard = shard_of(statistics, call->worker);
    if (call->cached == CALL_CACHE_MISS) {
        metric_cell_add(&shard->n_misses, 1);
        metric_cell_add(&shard->miss_ns, call->cache_ns);
    }
    if (call->cached == CALL_CACHE_HIT) {
        count_hit(shard, call);
    } else if (call->response.error.status == ST_OK) {
        count_success(shard, call);
    } else {
        metric_cell_add(&shard->failed[reason_of(call)], 1);
        metric_cell_add(&shard->failed_ns, call->finished_ns - call->queued_ns);
    }
}

/* ---- executions ------------------------------------------------------------------------------ */

static void cell_set(metric_cell *cell, uint64_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

void statistics_execution_begin(struct statistics *statistics, size_t instance,
                                struct call *const *calls, size_t n, uint64_t started_ns) {
    struct statistics_executions *running = &statistics->running[instance];
    uint64_t size = 0;
    size_t n_calls = 0;
    for (size_t i = 0; i < n; i++) {
        size += calls[i]->is_padding ? 0 : calls[i]->abi.batch;
        n_calls += !calls[i]->is_padding;
    }
    running->compute_start_ns = running->compute_end_ns = 0;
    cell_set(&running->n_calls, n_calls);
    cell_set(&running->size, size);
    cell_set(&running->since_ns, started_ns);
}

void statistics_execution_end(struct statistics *statistics, size_t instance, uint64_t ended_ns) {
    struct statistics_executions *running = &statistics->running[instance];
    uint64_t started_ns = metric_cell_read(&running->since_ns);
    uint64_t size = metric_cell_read(&running->size);
    struct statistics_compute compute =
        parts_of(started_ns, running->compute_start_ns, running->compute_end_ns, ended_ns);
    if (size <= statistics->n_sizes) {
        struct statistics_cells *cells = &running->by_size[size];
        metric_cell_add(&cells->count, 1);
        metric_cell_add(&cells->input_ns, compute.input_ns);
        metric_cell_add(&cells->infer_ns, compute.infer_ns);
        metric_cell_add(&cells->output_ns, compute.output_ns);
    }
    metric_histogram_add(&running->sizes, size);
    metric_cell_add(&running->count, 1);
    metric_cell_add(&running->busy_ns, ended_ns - started_ns);
    cell_set(&running->last_ns, ended_ns);
    cell_set(&running->since_ns, 0);
}

void statistics_computed(struct statistics *statistics, size_t instance,
                         const sluice_request *const *requests, size_t n, uint64_t began_ns,
                         uint64_t ended_ns) {
    struct statistics_executions *running = &statistics->running[instance];
    /* Of requests that are run one after the other: from the first to the last. */
    running->compute_start_ns =
        running->compute_start_ns > 0 ? running->compute_start_ns : began_ns;
    running->compute_end_ns = ended_ns;
    for (size_t i = 0; i < n; i++) {
        struct call *call = requests[i]->host;
        call->compute_start_ns = began_ns;
        call->compute_end_ns = ended_ns;
    }
}
