/* The statistics extension over HTTP: what the model room counts, as the JSON that the reference
 * server's clients read. */
#include "serve/http_stats.h"

#include "model/statistics.h"
#include "serve/http_text.h"

static void add_time(struct buf *out, const char *key, uint64_t count, uint64_t ns) {
    buf_add_char(out, '"');
    buf_add_str(out, str_of(key));
    buf_add_str(out, STR("\":{\"count\":"));
    buf_add_u64(out, count);
    buf_add_str(out, STR(",\"ns\":"));
    buf_add_u64(out, ns);
    buf_add_char(out, '}');
}

static void add_compute(struct buf *out, uint64_t count, const struct statistics_compute *compute) {
    add_time(out, "compute_input", count, compute->input_ns);
    buf_add_char(out, ',');
    add_time(out, "compute_infer", count, compute->infer_ns);
    buf_add_char(out, ',');
    add_time(out, "compute_output", count, compute->output_ns);
}

static void add_requests(struct buf *out, const struct model_statistics *statistics) {
    add_time(out, "success", statistics->success.count, statistics->success.ns);
    buf_add_char(out, ',');
    add_time(out, "fail", statistics->fail.count, statistics->fail.ns);
    buf_add_char(out, ',');
    add_time(out, "queue", statistics->queue.count, statistics->queue.ns);
    buf_add_char(out, ',');
    add_compute(out, statistics->n_computed, &statistics->compute);
    buf_add_char(out, ',');
    add_time(out, "cache_hit", statistics->cache_hit.count, statistics->cache_hit.ns);
    buf_add_char(out, ',');
    add_time(out, "cache_miss", statistics->cache_miss.count, statistics->cache_miss.ns);
}

static void add_batches(struct buf *out, struct model_version *version) {
    struct statistics_batch *batches;
    size_t n = model_version_batches(version, out->arena, &batches);
    for (size_t i = 0; i < n; i++) {
        buf_add_str(out, i > 0 ? STR(",{\"batch_size\":") : STR("{\"batch_size\":"));
        buf_add_u64(out, batches[i].size);
        buf_add_char(out, ',');
        add_compute(out, batches[i].count, &batches[i].compute);
        buf_add_char(out, '}');
    }
}

static void add_response(struct buf *out, const struct statistics_response *response) {
    add_time(out, "compute_infer", response->infer.count, response->infer.ns);
    buf_add_char(out, ',');
    add_time(out, "compute_output", response->output.count, response->output.ns);
    buf_add_char(out, ',');
    add_time(out, "success", response->success.count, response->success.ns);
    buf_add_char(out, ',');
    add_time(out, "fail", response->fail.count, response->fail.ns);
    buf_add_char(out, ',');
    add_time(out, "empty_response", response->empty.count, response->empty.ns);
    buf_add_char(out, ',');
    add_time(out, "cancel", response->cancel.count, response->cancel.ns);
}

/* Of decoupled models: answers by their place among those to a request. */
static void add_responses(struct buf *out, struct model_version *version) {
    struct statistics_response *responses;
    size_t n = model_version_responses(version, out->arena, &responses);
    for (size_t i = 0; i < n; i++) {
        buf_add_str(out, i > 0 ? STR(",\"") : STR("\""));
        buf_add_u64(out, i);
        buf_add_str(out, STR("\":{"));
        add_response(out, &responses[i]);
        buf_add_char(out, '}');
    }
}

static void add_version(void *cookie, struct model_version *version) {
    struct buf *out = cookie;
    const struct model_spec *spec = model_version_spec(version);
    struct model_statistics statistics;
    model_version_statistics(version, &statistics);
    if (out->data[out->len - 1] == '}') {
        buf_add_char(out, ',');
    }
    buf_add_str(out, STR("{\"name\":"));
    buf_add_json_string(out, spec->name);
    buf_add_str(out, STR(",\"version\":"));
    buf_add_json_string(out, spec->version_text);
    buf_add_str(out, STR(",\"last_inference\":"));
    buf_add_u64(out, statistics.last_inference_ms);
    buf_add_str(out, STR(",\"inference_count\":"));
    buf_add_u64(out, statistics.n_inferences);
    buf_add_str(out, STR(",\"execution_count\":"));
    buf_add_u64(out, statistics.n_executions);
    buf_add_str(out, STR(",\"inference_stats\":{"));
    add_requests(out, &statistics);
    buf_add_str(out, STR("},\"response_stats\":{"));
    add_responses(out, version);
    buf_add_str(out, STR("},\"batch_stats\":["));
    add_batches(out, version);
    /* What memory a model takes its backend doesn't say. */
    buf_add_str(out, STR("],\"memory_usage\":[]}"));
}

void http_stats_answer(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path) {
    struct buf body;
    struct error err;
    buf_init(&body, exchange->arena, 1024);
    buf_add_str(&body, STR("{\"model_stats\":["));
    if (!body.failed && repository_visit_ready(api->repository, path->model, path->version,
                                               add_version, &body, &err) != ST_OK) {
        err.status = ST_BAD_REQUEST; /* as the reference server has it, for an unknown name too */
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    buf_add_str(&body, STR("]}"));
    http_json_reply(exchange, 200, &body);
}
