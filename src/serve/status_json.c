/* The numbers behind the status page. Buckets of a histogram are given up to the last that is not
 * empty: bucket i counts what is at most 2^i microseconds (rows, of batches). */
#include "serve/status_json.h"

#include "base/metric.h"
#include "loop/clock.h"
#include "model/statistics.h"

/* A JSON text being written, whose members and elements need commas between them. */
struct json {
    struct buf *out;
    bool first; /* within the object or array at hand */
};

static void separate(struct json *json) {
    if (!json->first) {
        buf_add_char(json->out, ',');
    }
    json->first = false;
}

static void key(struct json *json, const char *name) {
    separate(json);
    buf_add_char(json->out, '"');
    buf_add_str(json->out, str_of(name));
    buf_add_str(json->out, STR("\":"));
}

static void open_with(struct json *json, char bracket) {
    buf_add_char(json->out, bracket);
    json->first = true;
}

static void close_with(struct json *json, char bracket) {
    buf_add_char(json->out, bracket);
    json->first = false;
}

static void add_u64(struct json *json, const char *name, uint64_t value) {
    key(json, name);
    buf_add_u64(json->out, value);
}

static void add_metric(struct json *json, const char *name, enum metric metric) {
    key(json, name);
    buf_add_i64(json->out, metric_read(metric));
}

static void add_f64(struct json *json, const char *name, double value) {
    key(json, name);
    buf_printf(json->out, "%.15g", value);
}

static void add_text(struct json *json, const char *name, struct str text) {
    key(json, name);
    buf_add_json_string(json->out, text);
}

/* ---- the process ----------------------------------------------------------------------------- */

static void add_server(struct json *json, struct admin_metrics *metrics) {
    key(json, "server");
    open_with(json, '{');
    add_text(json, "version", str_of(metrics->process.version));
    add_f64(json, "started", metrics->process.started_seconds);
    key(json, "ready");
    buf_add_str(json->out, repository_is_ready(metrics->repository) ? STR("true") : STR("false"));
    close_with(json, '}');
}

static void add_process(struct json *json, struct admin_metrics *metrics) {
    struct admin_machine_state state;
    admin_machine_read(&metrics->process.machine, &state);
    key(json, "process");
    open_with(json, '{');
    add_f64(json, "cpu_seconds", state.cpu_seconds);
    add_u64(json, "resident_bytes", state.resident_bytes);
    add_f64(json, "machine_utilization", state.utilization);
    add_metric(json, "connections", METRIC_CONNECTIONS);
    add_metric(json, "requests_in_flight", METRIC_REQUESTS_IN_FLIGHT);
    add_metric(json, "requests", METRIC_REQUESTS_TOTAL);
    add_metric(json, "received_bytes", METRIC_RECEIVED_BYTES_TOTAL);
    add_metric(json, "sent_bytes", METRIC_SENT_BYTES_TOTAL);
    add_metric(json, "body_bytes_in_flight", METRIC_BODY_BYTES_IN_FLIGHT);
    close_with(json, '}');
}

static void add_error(void *cookie, const char *protocol, enum status status, int64_t n) {
    struct json *json = cookie;
    separate(json);
    open_with(json, '{');
    add_text(json, "protocol", str_of(protocol));
    add_text(json, "reason", str_of(status_name(status)));
    add_u64(json, "count", (uint64_t)n);
    close_with(json, '}');
}

/* ---- models ---------------------------------------------------------------------------------- */

static void add_histogram(struct json *json, const char *name,
                          const struct metric_distribution *seen) {
    unsigned n = METRIC_BUCKETS;
    while (n > 0 && seen->buckets[n - 1] == 0) {
        n--;
    }
    key(json, name);
    open_with(json, '{');
    add_u64(json, "sum", seen->sum);
    key(json, "buckets");
    open_with(json, '[');
    for (unsigned i = 0; i < n; i++) {
        separate(json);
        buf_add_u64(json->out, seen->buckets[i]);
    }
    close_with(json, ']');
    close_with(json, '}');
}

static void add_failures(struct json *json, const struct model_statistics *statistics) {
    key(json, "failed");
    open_with(json, '{');
    for (int i = 0; i < STATISTICS_REASONS; i++) {
        add_u64(json, statistics_reason_name((enum statistics_reason)i), statistics->failed[i]);
    }
    close_with(json, '}');
}

static void add_statistics(struct json *json, struct model_version *version) {
    const struct model_spec *spec = model_version_spec(version);
    struct model_statistics statistics;
    model_version_statistics(version, &statistics);
    add_text(json, "platform", spec->platform);
    add_u64(json, "max_batch_size", spec->max_batch_size);
    add_u64(json, "queued", statistics.n_queued);
    add_u64(json, "running", statistics.n_running);
    add_u64(json, "instances", statistics.n_instances);
    add_u64(json, "busy", statistics.n_busy);
    add_u64(json, "busy_ns", statistics.busy_ns);
    add_u64(json, "succeeded", statistics.success.count);
    add_failures(json, &statistics);
    add_u64(json, "inferences", statistics.n_inferences);
    add_u64(json, "executions", statistics.n_executions);
    add_u64(json, "last_inference", statistics.last_inference_ms);
    add_histogram(json, "request", &statistics.request_time);
    add_histogram(json, "queue", &statistics.queue_time);
    add_histogram(json, "compute", &statistics.compute_time);
    add_histogram(json, "batch", &statistics.batch_size);
}

static void add_entry(void *cookie, const struct repository_entry *entry) {
    struct json *json = cookie;
    separate(json);
    open_with(json, '{');
    add_text(json, "name", entry->model);
    add_u64(json, "version", entry->number);
    add_text(json, "state", str_of(repository_phase_name(entry->phase)));
    if (entry->phase == REPOSITORY_FAILED) {
        add_text(json, "reason", str_of(entry->reason));
    }
    if (entry->version) {
        add_statistics(json, entry->version);
    }
    close_with(json, '}');
}

void status_json_print(struct admin_metrics *metrics, struct buf *out) {
    struct json json = {out, true};
    open_with(&json, '{');
    add_u64(&json, "now_ns", clock_now_ns());
    add_server(&json, metrics);
    add_process(&json, metrics);
    key(&json, "errors");
    open_with(&json, '[');
    metric_visit_errors(add_error, &json);
    close_with(&json, ']');
    key(&json, "models");
    open_with(&json, '[');
    repository_visit(metrics->repository, add_entry, &json);
    close_with(&json, ']');
    close_with(&json, '}');
}
