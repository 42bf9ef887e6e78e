/* Reading what was counted: the cells of all workers and instances, added up. Nothing here makes a
 * counting thread wait. */
#include "serve/scheduler/statistics/statistics.h"

#include <time.h>

#include "core/event/clock.h"
#include "serve/scheduler/statistics/count.h"
#include "serve/scheduler/version.h"

enum { NS_PER_MS = 1000000, WALL_MAY_DIFFER_NS = 10 * NS_PER_MS };

const char *statistics_reason_name(enum statistics_reason reason) {
    static const char *const names[STATISTICS_REASONS] = {
        [STATISTICS_REJECTED] = "REJECTED",
        [STATISTICS_CANCELED] = "CANCELED",
        [STATISTICS_BACKEND] = "BACKEND",
        [STATISTICS_OTHER] = "OTHER",
    };
    return names[reason];
}

/* A moment of the monotonic clock as ms since 1970. The same moment is the same number each time,
 * unless the wall clock was set, or the machine slept, in between. */
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

static void read_requests(struct statistics *statistics, struct model_statistics *out) {
    read_shard(&statistics->spare, out);
    for (size_t i = 0; i < PER_WORKER_SLOTS; i++) {
        const struct per_worker *one = per_worker_first(&statistics->shards, i);
        for (; one; one = one->next) {
            read_shard((const struct statistics_shard *)one, out);
        }
    }
    out->success = (struct statistics_time){out->request_time.count, out->request_time.sum};
    out->queue = (struct statistics_time){out->queue_time.count, out->queue_time.sum};
    out->n_computed = out->compute_time.count;
}

static void read_executions(struct statistics *statistics, struct model_statistics *out) {
    uint64_t last_ns = 0;
    for (size_t i = 0; i < statistics->n_instances; i++) {
        const struct statistics_executions *running = &statistics->running[i];
        uint64_t ended_ns = metric_cell_read(&running->last_ns);
        last_ns = ended_ns > last_ns ? ended_ns : last_ns;
        out->n_executions += metric_cell_read(&running->count);
        out->busy_ns += metric_cell_read(&running->busy_ns);
        out->n_busy += metric_cell_read(&running->since_ns) > 0;
        metric_histogram_read(&running->sizes, &out->batch_size);
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

static struct statistics_batch read_size(const struct statistics *statistics, size_t size) {
    struct statistics_batch batch = {.size = size};
    for (size_t i = 0; i < statistics->n_instances; i++) {
        const struct statistics_cells *cells = &statistics->running[i].by_size[size];
        batch.count += metric_cell_read(&cells->count);
        batch.compute.input_ns += metric_cell_read(&cells->input_ns);
        batch.compute.infer_ns += metric_cell_read(&cells->infer_ns);
        batch.compute.output_ns += metric_cell_read(&cells->output_ns);
    }
    return batch;
}

size_t model_version_batches(struct model_version *version, struct arena *arena,
                             struct statistics_batch **out) {
    const struct statistics *statistics = &version->statistics;
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
