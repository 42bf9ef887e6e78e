/* Counts requests, executions and responses, and reads the counters. A cell has one writer at a
 * time (the worker that delivers a request, the thread that claimed an instance), so counting is a
 * load and a store without a locked instruction. Only the response counters, in blocks that are
 * published once and never moved, are written by several threads. */
#include "serve/scheduler/statistics/statistics.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/event/clock.h"
#include "serve/scheduler/statistics/count.h"
#include "serve/scheduler/version.h"

/* ---- responses by index ---------------------------------------------------------------------- */

enum { PER_BLOCK = STATISTICS_RESPONSE_BLOCK, N_BLOCKS = STATISTICS_RESPONSES / PER_BLOCK };

struct response_cells {
    _Atomic uint64_t n[RESPONSE_OUTCOMES], ns[RESPONSE_OUTCOMES];
    _Atomic uint64_t infer_ns, output_ns; /* without cancelled ones */
};

struct statistics_response_block {
    struct response_cells response_cells[PER_BLOCK];
};

static struct statistics_response_block *load_block(const struct statistics_responses *responses,
                                                    size_t i) {
    return atomic_load_explicit(&responses->blocks[i], memory_order_acquire);
}

/* Returns: NULL when out of memory. */
static struct statistics_response_block *block_at(struct statistics_responses *responses,
                                                  size_t i) {
    struct statistics_response_block *block = load_block(responses, i);
    if (block) {
        return block;
    }
    struct statistics_response_block *made = calloc(1, sizeof(*made));
    if (made &&
        atomic_compare_exchange_strong_explicit(&responses->blocks[i], &block, made,
                                                memory_order_acq_rel, memory_order_acquire)) {
        return made;
    }
    free(made);
    return block; /* another thread's block; NULL when out of memory */
}

static void cell_add(_Atomic uint64_t *cell, uint64_t n) {
    atomic_fetch_add_explicit(cell, n, memory_order_relaxed);
}

void statistics_response_add(struct statistics_responses *responses, uint64_t place,
                             enum statistics_outcome outcome, uint64_t infer_ns,
                             uint64_t output_ns) {
    struct statistics_response_block *block =
        place < STATISTICS_RESPONSES ? block_at(responses, place / PER_BLOCK) : NULL;
    if (!block) {
        return;
    }
    struct response_cells *response_cells = &block->response_cells[place % PER_BLOCK];
    bool has_outputs = outcome == RESPONSE_SUCCESS || outcome == RESPONSE_FAIL;
    cell_add(&response_cells->n[outcome], 1);
    cell_add(&response_cells->ns[outcome], infer_ns + (has_outputs ? output_ns : 0));
    cell_add(&response_cells->infer_ns, outcome == RESPONSE_CANCEL ? 0 : infer_ns);
    cell_add(&response_cells->output_ns, has_outputs ? output_ns : 0);
}

static struct statistics_time read_time(const struct response_cells *response_cells,
                                        enum statistics_outcome of) {
    return (struct statistics_time){
        atomic_load_explicit(&response_cells->n[of], memory_order_relaxed),
        atomic_load_explicit(&response_cells->ns[of], memory_order_relaxed)};
}

static struct statistics_response read_cells(const struct response_cells *response_cells) {
    struct statistics_response out = {
        .success = read_time(response_cells, RESPONSE_SUCCESS),
        .fail = read_time(response_cells, RESPONSE_FAIL),
        .empty = read_time(response_cells, RESPONSE_EMPTY),
        .cancel = read_time(response_cells, RESPONSE_CANCEL),
    };
    out.output.count = out.success.count + out.fail.count;
    out.output.ns = atomic_load_explicit(&response_cells->output_ns, memory_order_relaxed);
    out.infer.count = out.output.count + out.empty.count;
    out.infer.ns = atomic_load_explicit(&response_cells->infer_ns, memory_order_relaxed);
    return out;
}

size_t statistics_responses_read(const struct statistics_responses *responses, struct arena *arena,
                                 struct statistics_response **out) {
    size_t n_blocks = N_BLOCKS, n = 0;
    while (n_blocks > 0 && !load_block(responses, n_blocks - 1)) {
        n_blocks--;
    }
    *out = arena_calloc(arena, n_blocks * PER_BLOCK, sizeof(**out));
    for (size_t i = 0; *out && i < n_blocks * PER_BLOCK; i++) {
        const struct statistics_response_block *block = load_block(responses, i / PER_BLOCK);
        if (block) {
            (*out)[i] = read_cells(&block->response_cells[i % PER_BLOCK]);
        }
        n = (*out)[i].infer.count + (*out)[i].cancel.count > 0 ? i + 1 : n;
    }
    return n;
}

void statistics_responses_free(struct statistics_responses *responses) {
    for (size_t i = 0; i < N_BLOCKS; i++) {
        free(load_block(responses, i));
    }
}

/* ---- allocation ------------------------------------------------------------------------------ */

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
        return error_no_memory(err, "the statistics of %zu instances", n_instances);
    }
    statistics->running = running;
    statistics->n_instances = n_instances;
    statistics->n_sizes = n_sizes;
    return ST_OK;
}

void statistics_fini(struct statistics *statistics) {
    per_worker_table_fini(&statistics->shards);
    latency_fini(&statistics->latency);
    statistics_responses_free(&statistics->responses);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The worker's own counters, created by that worker. */
static struct statistics_shard *shard_of(struct statistics *statistics,
                                         const struct worker *worker) {
    struct statistics_shard *shard =
        (struct statistics_shard *)per_worker_find(&statistics->shards, worker);
    if (shard) {
        return shard;
    }
    bool has_executions = statistics->n_instances == 0; /* after it, in the same block */
    size_t n_cells = has_executions ? statistics->n_sizes + 1 : 0;
    struct statistics_executions *executions;
    size_t n_bytes = sizeof(*shard) + (has_executions ? sizeof(*executions) : 0) +
                     n_cells * sizeof(struct statistics_cells);
    n_bytes = (n_bytes + STATISTICS_LINE_BYTES - 1) / STATISTICS_LINE_BYTES * STATISTICS_LINE_BYTES;
    shard = aligned_alloc(STATISTICS_LINE_BYTES, n_bytes);
    if (!shard) {
        return &statistics->spare;
    }
    memset(shard, 0, n_bytes);
    if (has_executions) {
        executions = (struct statistics_executions *)(void *)(shard + 1);
        executions->by_size = (struct statistics_cells *)(void *)(executions + 1);
        shard->executions = executions;
    }
    per_worker_add(&statistics->shards, worker, &shard->per_worker);
    return shard;
}

static enum statistics_reason reason_of(const struct call *call) {
    enum status status = call->response.error.status;
    if (status == ST_CANCELLED) {
        return STATISTICS_CANCELLED;
    }
    if (call->started_ns > 0) {
        return status == ST_NO_MEMORY ? STATISTICS_OTHER : STATISTICS_BACKEND;
    }
    return status == ST_QUEUE_TIMEOUT || status == ST_DEADLINE_EXCEEDED ? STATISTICS_REJECTED
                                                                        : STATISTICS_OTHER;
}

/* Inconsistent compute times from a backend count as infer time. */
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

struct statistics_compute statistics_compute_of(const struct call *call) {
    return call->run->has_ensemble_compute ? call->run->ensemble_compute
                                           : parts_of(call->started_ns, call->compute_start_ns,
                                                      call->compute_end_ns, call->finished_ns);
}

static void count_success(struct statistics *statistics, struct statistics_shard *shard,
                          const struct call *call) {
    struct statistics_compute compute = statistics_compute_of(call);
    metric_histogram_add_ns(&shard->request, call->finished_ns - call->queued_ns);
    metric_histogram_add_ns(&shard->queue, call->started_ns - call->queued_ns);
    metric_histogram_add_ns(&shard->compute, call->finished_ns - call->started_ns);
    metric_cell_add(&shard->n_inferences, call->run->backend_request.batch);
    metric_cell_add(&shard->input_ns, compute.input_ns);
    metric_cell_add(&shard->infer_ns, compute.infer_ns);
    metric_cell_add(&shard->output_ns, compute.output_ns);
    if (latency_is_on(&statistics->latency)) {
        latency_count_success(&statistics->latency, call, &compute);
    }
}

void statistics_count_call(struct statistics *statistics, const struct call *call) {
    struct statistics_shard *shard = shard_of(statistics, call->worker);
    if (call->cached == CALL_CACHE_MISS) {
        metric_cell_add(&shard->n_misses, 1);
        metric_cell_add(&shard->miss_ns, call->run->cache_ns);
    }
    if (call->cached == CALL_CACHE_HIT) { /* neither queued nor executed */
        metric_histogram_add_ns(&shard->request, call->finished_ns - call->queued_ns);
        metric_histogram_add_ns(&shard->queue, 0);
        metric_cell_add(&shard->n_hits, 1);
        metric_cell_add(&shard->hit_ns, call->run->cache_ns);
    } else if (call->response.error.status == ST_OK) {
        count_success(statistics, shard, call);
    } else {
        metric_cell_add(&shard->failed[reason_of(call)], 1);
        metric_cell_add(&shard->failed_ns, call->finished_ns - call->queued_ns);
    }
    if (latency_is_on(&statistics->latency) &&
        (call->cached == CALL_CACHE_HIT || call->cached == CALL_CACHE_MISS)) {
        latency_count_lookup(&statistics->latency, call, call->cached == CALL_CACHE_HIT);
    }
}

/* ---- executions ------------------------------------------------------------------------------ */

static void cell_set(metric_cell *cell, uint64_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

static void count_execution(struct statistics_executions *executions, size_t n_sizes, uint64_t size,
                            const struct statistics_compute *compute, uint64_t ended_ns) {
    if (size <= n_sizes) {
        struct statistics_cells *cells = &executions->by_size[size];
        metric_cell_add(&cells->count, 1);
        metric_cell_add(&cells->input_ns, compute->input_ns);
        metric_cell_add(&cells->infer_ns, compute->infer_ns);
        metric_cell_add(&cells->output_ns, compute->output_ns);
    }
    metric_histogram_add(&executions->sizes, size);
    metric_cell_add(&executions->count, 1);
    cell_set(&executions->last_ns, ended_ns);
}

void statistics_execution_begin(struct statistics *statistics, size_t instance,
                                struct call *const *calls, size_t n, uint64_t started_ns) {
    struct statistics_executions *running = &statistics->running[instance];
    uint64_t size = 0;
    size_t n_calls = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_padding = calls[i]->run->role == CALL_PADDING;
        size += is_padding ? 0 : calls[i]->run->backend_request.batch;
        n_calls += !is_padding;
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
    count_execution(running, statistics->n_sizes, size, &compute, ended_ns);
    metric_cell_add(&running->busy_ns, ended_ns - started_ns);
    cell_set(&running->since_ns, 0);
}

void statistics_count_execution(struct statistics *statistics, const struct call *call) {
    const struct statistics_shard *shard = shard_of(statistics, call->worker);
    struct statistics_compute compute = statistics_compute_of(call);
    if (shard->executions) {
        count_execution(shard->executions, statistics->n_sizes, call->run->backend_request.batch,
                        &compute, call->finished_ns);
    }
}

void statistics_computed(struct statistics *statistics, size_t instance,
                         const sluice_request *const *requests, size_t n, uint64_t began_ns,
                         uint64_t ended_ns) {
    struct statistics_executions *running = &statistics->running[instance];
    /* For requests that are run one after the other: from the first to the last. */
    running->compute_start_ns =
        running->compute_start_ns > 0 ? running->compute_start_ns : began_ns;
    running->compute_end_ns = ended_ns;
    for (size_t i = 0; i < n; i++) {
        struct call *call = requests[i]->host;
        call->compute_start_ns = began_ns;
        call->compute_end_ns = ended_ns;
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

enum { NS_PER_MS = 1000000, WALL_MAY_DIFFER_NS = 10 * NS_PER_MS };

const char *statistics_reason_name(enum statistics_reason reason) {
    static const char *const names[STATISTICS_REASONS] = {
        [STATISTICS_REJECTED] = "REJECTED",
        [STATISTICS_CANCELLED] = "CANCELED",
        [STATISTICS_BACKEND] = "BACKEND",
        [STATISTICS_OTHER] = "OTHER",
    };
    return names[reason];
}

/* Converts a monotonic time to ms since 1970. A time converts to the same number on each call,
 * unless the wall clock was set or the machine slept in between. */
static uint64_t wall_ms(struct statistics *statistics, uint64_t at_ns) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t zero = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)clock_now_ns();
    int64_t kept = atomic_load_explicit(&statistics->wall_ns, memory_order_relaxed);
    if (zero - kept > WALL_MAY_DIFFER_NS || kept - zero > WALL_MAY_DIFFER_NS) {
        atomic_store_explicit(&statistics->wall_ns, zero, memory_order_relaxed);
        kept = zero;
    }
    return (uint64_t)(kept + (int64_t)at_ns) / NS_PER_MS;
}

static void read_shard(const struct statistics_shard *shard, struct model_statistics *out) {
    metric_histogram_read(&shard->request, &out->request_time);
    metric_histogram_read(&shard->queue, &out->queue_time);
    metric_histogram_read(&shard->compute, &out->compute_time);
    out->n_inferences += metric_cell_read(&shard->n_inferences);
    out->compute.input_ns += metric_cell_read(&shard->input_ns);
    out->compute.infer_ns += metric_cell_read(&shard->infer_ns);
    out->compute.output_ns += metric_cell_read(&shard->output_ns);
    out->fail.ns += metric_cell_read(&shard->failed_ns);
    out->cache_hit.count += metric_cell_read(&shard->n_hits);
    out->cache_hit.ns += metric_cell_read(&shard->hit_ns);
    out->cache_miss.count += metric_cell_read(&shard->n_misses);
    out->cache_miss.ns += metric_cell_read(&shard->miss_ns);
    for (int i = 0; i < STATISTICS_REASONS; i++) {
        uint64_t n = metric_cell_read(&shard->failed[i]);
        out->failed[i] += n;
        out->fail.count += n;
    }
}

/* As per_worker_next. */
static const struct statistics_shard *next_shard(struct statistics *statistics,
                                                 const struct statistics_shard *shard,
                                                 size_t *slot) {
    return (const struct statistics_shard *)per_worker_next(
        &statistics->shards, shard ? &shard->per_worker : NULL, slot);
}

static void read_requests(struct statistics *statistics, struct model_statistics *out) {
    const struct statistics_shard *shard = NULL;
    read_shard(&statistics->spare, out);
    for (size_t slot = 0; (shard = next_shard(statistics, shard, &slot));) {
        read_shard(shard, out);
    }
    out->success = (struct statistics_time){out->request_time.count, out->request_time.sum};
    out->queue = (struct statistics_time){out->queue_time.count, out->queue_time.sum};
    out->n_computed = out->compute_time.count;
}

static void read_running(const struct statistics_executions *running, struct model_statistics *out,
                         uint64_t *last_ns) {
    uint64_t ended_ns = metric_cell_read(&running->last_ns);
    *last_ns = ended_ns > *last_ns ? ended_ns : *last_ns;
    out->n_executions += metric_cell_read(&running->count);
    out->busy_ns += metric_cell_read(&running->busy_ns);
    out->n_busy += metric_cell_read(&running->since_ns) > 0;
    metric_histogram_read(&running->sizes, &out->batch_size);
}

static void read_executions(struct statistics *statistics, struct model_statistics *out) {
    const struct statistics_shard *shard = NULL;
    uint64_t last_ns = 0;
    for (size_t i = 0; i < statistics->n_instances; i++) {
        read_running(&statistics->running[i], out, &last_ns);
    }
    for (size_t slot = 0; (shard = next_shard(statistics, shard, &slot));) {
        if (shard->executions) {
            read_running(shard->executions, out, &last_ns);
        }
    }
    out->last_inference_ms = last_ns > 0 ? wall_ms(statistics, last_ns) : 0;
}

void model_version_gauges(struct model_version *version, uint64_t *n_queued, uint64_t *n_running,
                          uint64_t *n_instances) {
    uint64_t queued = atomic_load_explicit(&version->scheduler.n_queued, memory_order_relaxed);
    uint64_t in_flight = atomic_load_explicit(&version->n_in_flight, memory_order_relaxed);
    *n_queued = queued;
    *n_running = in_flight > queued ? in_flight - queued : 0;
    *n_instances = version->n_instances;
}

void model_version_statistics(struct model_version *version, struct model_statistics *out) {
    struct statistics *statistics = &version->statistics;
    *out = (struct model_statistics){.loaded_ns = statistics->loaded_ns,
                                     .caches = version->cache.cache != NULL};
    read_requests(statistics, out);
    read_executions(statistics, out);
    model_version_gauges(version, &out->n_queued, &out->n_running, &out->n_instances);
}

static void read_cells_of(const struct statistics_cells *cells, struct statistics_batch *batch) {
    batch->count += metric_cell_read(&cells->count);
    batch->compute.input_ns += metric_cell_read(&cells->input_ns);
    batch->compute.infer_ns += metric_cell_read(&cells->infer_ns);
    batch->compute.output_ns += metric_cell_read(&cells->output_ns);
}

static struct statistics_batch read_size(struct statistics *statistics, size_t size) {
    struct statistics_batch batch = {.size = size};
    const struct statistics_shard *shard = NULL;
    for (size_t i = 0; i < statistics->n_instances; i++) {
        read_cells_of(&statistics->running[i].by_size[size], &batch);
    }
    for (size_t slot = 0; (shard = next_shard(statistics, shard, &slot));) {
        if (shard->executions) {
            read_cells_of(&shard->executions->by_size[size], &batch);
        }
    }
    return batch;
}

size_t model_version_batches(struct model_version *version, struct arena *arena,
                             struct statistics_batch **out) {
    struct statistics *statistics = &version->statistics;
    struct statistics_batch *batches =
        arena_calloc(arena, statistics->n_sizes + 1, sizeof(*batches));
    size_t n = 0;
    for (size_t size = 0; batches && size <= statistics->n_sizes; size++) {
        struct statistics_batch batch = read_size(statistics, size);
        if (batch.count > 0) {
            batches[n++] = batch;
        }
    }
    *out = batches;
    return n;
}

size_t model_version_responses(struct model_version *version, struct arena *arena,
                               struct statistics_response **out) {
    return statistics_responses_read(&version->statistics.responses, arena, out);
}

void model_version_instance(struct model_version *version, size_t i,
                            struct statistics_instance *out) {
    const struct statistics_executions *running = &version->statistics.running[i];
    *out = (struct statistics_instance){
        .since_ns = metric_cell_read(&running->since_ns),
        .requests = metric_cell_read(&running->n_calls),
        .size = metric_cell_read(&running->size),
        .executions = metric_cell_read(&running->count),
        .busy_ns = metric_cell_read(&running->busy_ns),
    };
}
