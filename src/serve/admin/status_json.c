/* The JSON of the status page: the models and their counters. The buckets of a batch-size histogram
 * count rows. */
#include "serve/admin/routes.h"

#include "serve/scheduler/statistics/statistics.h"
#include "telemetry/admin/status_common.h"

/* ---- models ---------------------------------------------------------------------------------- */

static void add_failures(struct json_writer *json, const struct model_statistics *statistics) {
    json_write_open(json, "failed", '{');
    for (int i = 0; i < STATISTICS_REASONS; i++) {
        json_write_u64(json, statistics_reason_name((enum statistics_reason)i),
                       statistics->failed[i]);
    }
    json_write_close(json, '}');
}

enum { MAX_TENSORS = 16 /* of a model, on the page */ };

static void add_tensors(struct json_writer *json, const char *name, const struct tensor_spec *specs,
                        size_t n) {
    json_write_open(json, name, '[');
    for (size_t i = 0; i < n && i < MAX_TENSORS; i++) {
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_string(json, "name", specs[i].name);
        json_write_string(json, "datatype", str_of(datatype_name(specs[i].datatype)));
        json_write_i64s(json, "shape", specs[i].shape.dims, specs[i].shape.rank);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void add_statistics(struct json_writer *json, struct model_version *version) {
    const struct model_spec *spec = model_version_spec(version);
    struct model_statistics statistics;
    model_version_statistics(version, &statistics);
    json_write_string(json, "platform", spec->platform);
    json_write_u64(json, "max_batch_size", spec->max_batch_size);
    add_tensors(json, "inputs", spec->inputs, spec->n_inputs);
    add_tensors(json, "outputs", spec->outputs, spec->n_outputs);
    json_write_u64(json, "queued", statistics.n_queued);
    json_write_u64(json, "running", statistics.n_running);
    json_write_u64(json, "instances", statistics.n_instances);
    json_write_u64(json, "busy", statistics.n_busy);
    json_write_u64(json, "busy_ns", statistics.busy_ns);
    json_write_u64(json, "succeeded", statistics.success.count);
    add_failures(json, &statistics);
    json_write_u64(json, "inferences", statistics.n_inferences);
    json_write_u64(json, "executions", statistics.n_executions);
    json_write_u64(json, "last_inference", statistics.last_inference_ms);
    status_json_add_histogram(json, "request", &statistics.request_time);
    status_json_add_histogram(json, "queue", &statistics.queue_time);
    status_json_add_histogram(json, "compute", &statistics.compute_time);
    status_json_add_histogram(json, "batch", &statistics.batch_size);
}

static void add_entry(void *user, const struct repository_entry *entry) {
    struct json_writer *json = user;
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", entry->model);
    json_write_u64(json, "version", entry->number);
    json_write_string(json, "state", str_of(repository_phase_name(entry->phase)));
    if (entry->phase == REPOSITORY_FAILED) {
        json_write_string(json, "reason", str_of(entry->reason));
    }
    if (entry->version) {
        add_statistics(json, entry->version);
    }
    json_write_close(json, '}');
}

void status_json_print(void *context, const struct net_memory_report *memory, struct buf *out) {
    const struct admin_api *api = context;
    struct admin_metrics *metrics = api->metrics;
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    status_json_add_process(&json, &metrics->process, admin_api_is_ready(api));
    status_json_add_memory(&json, memory);
    json_write_string(&json, "http_url", str_of(metrics->http_url ? metrics->http_url : ""));
    json_write_open(&json, "models", '[');
    repository_visit(metrics->repository, add_entry, &json);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
}
