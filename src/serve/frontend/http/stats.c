/* The statistics extension over HTTP: the counters of the models as the JSON that the reference
 * server's clients read. */
#include "serve/frontend/http/routes.h"

#include <assert.h>
#include <stdio.h>

#include "core/base/json_writer.h"
#include "serve/scheduler/statistics/statistics.h"
#include "telemetry/admin/http_text.h"

static void add_count(struct json_writer *json, const char *name, uint64_t count, uint64_t ns) {
    json_write_open(json, name, '{');
    json_write_u64(json, "count", count);
    json_write_u64(json, "ns", ns);
    json_write_close(json, '}');
}

static void add_time(struct json_writer *json, const char *name,
                     const struct statistics_time *time) {
    add_count(json, name, time->count, time->ns);
}

static void add_compute(struct json_writer *json, uint64_t count,
                        const struct statistics_compute *compute) {
    add_count(json, "compute_input", count, compute->input_ns);
    add_count(json, "compute_infer", count, compute->infer_ns);
    add_count(json, "compute_output", count, compute->output_ns);
}

static void add_requests(struct json_writer *json, const struct model_statistics *statistics) {
    json_write_open(json, "inference_stats", '{');
    add_time(json, "success", &statistics->success);
    add_time(json, "fail", &statistics->fail);
    add_time(json, "queue", &statistics->queue);
    add_compute(json, statistics->n_computed, &statistics->compute);
    add_time(json, "cache_hit", &statistics->cache_hit);
    add_time(json, "cache_miss", &statistics->cache_miss);
    json_write_close(json, '}');
}

static void add_batches(struct json_writer *json, struct model_version *version) {
    struct statistics_batch *batches;
    size_t n = model_version_batches(version, json->out->arena, &batches);
    json_write_open(json, "batch_stats", '[');
    for (size_t i = 0; i < n; i++) {
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_u64(json, "batch_size", batches[i].size);
        add_compute(json, batches[i].count, &batches[i].compute);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void add_response(struct json_writer *json, const struct statistics_response *response) {
    add_time(json, "compute_infer", &response->infer);
    add_time(json, "compute_output", &response->output);
    add_time(json, "success", &response->success);
    add_time(json, "fail", &response->fail);
    add_time(json, "empty_response", &response->empty);
    add_time(json, "cancel", &response->cancel);
}

/* Counters of decoupled models, by the index of the response to a request. */
static void add_responses(struct json_writer *json, struct model_version *version) {
    struct statistics_response *responses;
    size_t n = model_version_responses(version, json->out->arena, &responses);
    json_write_open(json, "response_stats", '{');
    for (size_t i = 0; i < n; i++) {
        char place[24];
        snprintf(place, sizeof(place), "%zu", i);
        json_write_open(json, place, '{');
        add_response(json, &responses[i]);
        json_write_close(json, '}');
    }
    json_write_close(json, '}');
}

static void add_version(void *user, struct model_version *version) {
    struct json_writer *json = user;
    const struct model_spec *spec = model_version_spec(version);
    struct model_statistics statistics;
    model_version_statistics(version, &statistics);
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", spec->name);
    json_write_string(json, "version", spec->version_text);
    json_write_u64(json, "last_inference", statistics.last_inference_ms);
    json_write_u64(json, "inference_count", statistics.n_inferences);
    json_write_u64(json, "execution_count", statistics.n_executions);
    add_requests(json, &statistics);
    add_responses(json, version);
    add_batches(json, version);
    /* Always empty: backends do not report memory. */
    json_write_open(json, "memory_usage", '[');
    json_write_close(json, ']');
    json_write_close(json, '}');
}

enum { ENTRY_BYTES = 1024 }; /* of a version, about */

static enum status print(struct repository *repository, struct str model, struct str version,
                         struct buf *out, struct error *err) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "model_stats", '[');
    enum status st = repository_visit_ready(repository, model, version, add_version, &json, err);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    return st;
}

void http_stats_print(void *context, struct buf *out) {
    struct error err;
    enum status st = print(context, str_make(NULL, 0), str_make(NULL, 0), out, &err);
    assert(st == ST_OK); /* no model is named */
    (void)st;
}

void http_stats_answer(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path) {
    struct repository *repository = api->services.repository;
    struct buf body;
    struct error err;
    if (path->model.len == 0 &&
        shared_page_is_large(api->services.pages, repository, ENTRY_BYTES)) {
        http_page_begin(exchange, PAGE_STATISTICS, "application/json");
        return;
    }
    buf_init(&body, exchange->arena, 1024);
    if (!body.failed && print(repository, path->model, path->version, &body, &err) != ST_OK) {
        err.status = ST_BAD_REQUEST; /* as the reference server does, for an unknown name too */
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    http_json_reply(exchange, 200, &body);
}
