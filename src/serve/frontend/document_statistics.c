/* The statistics extension: ModelStatistics. Field numbers are those of proto/grpc_service.proto;
 * zeros are omitted, as in proto3. */
#include "serve/frontend/documents.h"

#include <assert.h>
#include <stdio.h>

#include "codec/protobuf/pb.h"
#include "serve/scheduler/statistics/statistics.h"

enum { MODEL_STATS = 1 }; /* of ModelStatisticsResponse */

/* ModelStatistics */
enum {
    NAME = 1,
    VERSION = 2,
    LAST_INFERENCE = 3,
    INFERENCE_COUNT = 4,
    EXECUTION_COUNT = 5,
    INFERENCE_STATS = 6,
    BATCH_STATS = 7,
    RESPONSE_STATS = 9,
};

/* InferStatistics */
enum {
    SUCCESS = 1,
    FAIL = 2,
    QUEUE = 3,
    COMPUTE_INPUT = 4,
    COMPUTE_INFER = 5,
    COMPUTE_OUTPUT = 6,
    CACHE_HIT = 7,
    CACHE_MISS = 8,
};

/* InferBatchStatistics */
enum { BATCH_SIZE = 1, BATCH_INPUT = 2, BATCH_INFER = 3, BATCH_OUTPUT = 4 };

/* InferResponseStatistics */
enum {
    RESPONSE_INFER = 1,
    RESPONSE_OUTPUT = 2,
    RESPONSE_SUCCEEDED = 3,
    RESPONSE_FAILED = 4,
    RESPONSE_WAS_EMPTY = 5,
    RESPONSE_CANCELLED = 6,
};

/* A map entry */
enum { MAP_KEY = 1, MAP_VALUE = 2 };

/* StatisticDuration */
enum { COUNT = 1, NS = 2 };

static void add_time(struct buf *out, uint32_t field, uint64_t count, uint64_t ns) {
    size_t at = pb_begin(out, field);
    pb_add_number(out, COUNT, count);
    pb_add_number(out, NS, ns);
    pb_end(out, at);
}

static void add_requests(struct buf *out, const struct model_statistics *statistics) {
    uint64_t n_computed = statistics->n_computed;
    size_t at = pb_begin(out, INFERENCE_STATS);
    add_time(out, SUCCESS, statistics->success.count, statistics->success.ns);
    add_time(out, FAIL, statistics->fail.count, statistics->fail.ns);
    add_time(out, QUEUE, statistics->queue.count, statistics->queue.ns);
    add_time(out, COMPUTE_INPUT, n_computed, statistics->compute.input_ns);
    add_time(out, COMPUTE_INFER, n_computed, statistics->compute.infer_ns);
    add_time(out, COMPUTE_OUTPUT, n_computed, statistics->compute.output_ns);
    add_time(out, CACHE_HIT, statistics->cache_hit.count, statistics->cache_hit.ns);
    add_time(out, CACHE_MISS, statistics->cache_miss.count, statistics->cache_miss.ns);
    pb_end(out, at);
}

static void add_batches(struct buf *out, struct model_version *version) {
    struct statistics_batch *batches;
    size_t n = model_version_batches(version, out->arena, &batches);
    for (size_t i = 0; i < n; i++) {
        const struct statistics_batch *batch = &batches[i];
        size_t at = pb_begin(out, BATCH_STATS);
        pb_add_number(out, BATCH_SIZE, batch->size);
        add_time(out, BATCH_INPUT, batch->count, batch->compute.input_ns);
        add_time(out, BATCH_INFER, batch->count, batch->compute.infer_ns);
        add_time(out, BATCH_OUTPUT, batch->count, batch->compute.output_ns);
        pb_end(out, at);
    }
}

static void add_response(struct buf *out, const struct statistics_response *response) {
    size_t at = pb_begin(out, MAP_VALUE);
    add_time(out, RESPONSE_INFER, response->infer.count, response->infer.ns);
    add_time(out, RESPONSE_OUTPUT, response->output.count, response->output.ns);
    add_time(out, RESPONSE_SUCCEEDED, response->success.count, response->success.ns);
    add_time(out, RESPONSE_FAILED, response->fail.count, response->fail.ns);
    add_time(out, RESPONSE_WAS_EMPTY, response->empty.count, response->empty.ns);
    add_time(out, RESPONSE_CANCELLED, response->cancel.count, response->cancel.ns);
    pb_end(out, at);
}

static void add_responses(struct buf *out, struct model_version *version) {
    struct statistics_response *responses;
    size_t n = model_version_responses(version, out->arena, &responses);
    for (size_t i = 0; i < n; i++) {
        char place[24];
        size_t at = pb_begin(out, RESPONSE_STATS);
        snprintf(place, sizeof(place), "%zu", i);
        pb_add_string(out, MAP_KEY, str_of(place));
        add_response(out, &responses[i]);
        pb_end(out, at);
    }
}

static void add_version(void *user, struct model_version *version) {
    struct buf *out = user;
    const struct model_spec *spec = model_version_spec(version);
    struct model_statistics statistics;
    model_version_statistics(version, &statistics);
    size_t at = pb_begin(out, MODEL_STATS);
    pb_add_string(out, NAME, spec->name);
    pb_add_string(out, VERSION, spec->version_text);
    pb_add_number(out, LAST_INFERENCE, statistics.last_inference_ms);
    pb_add_number(out, INFERENCE_COUNT, statistics.n_inferences);
    pb_add_number(out, EXECUTION_COUNT, statistics.n_executions);
    add_requests(out, &statistics);
    add_batches(out, version);
    add_responses(out, version);
    pb_end(out, at);
}

enum status document_encode_statistics(struct repository *repository, struct str model,
                                       struct str version, struct buf *out, struct error *err) {
    enum status st = repository_visit_ready(repository, model, version, add_version, out, err);
    return st == ST_OK ? ST_OK : (err->status = ST_BAD_REQUEST);
}

void document_encode_all_statistics(struct repository *repository, struct buf *out) {
    struct error err;
    enum status st = repository_visit_ready(repository, str_make(NULL, 0), str_make(NULL, 0),
                                            add_version, out, &err);
    assert(st == ST_OK); /* no model is named */
    (void)st;
}
