/* The process and its errors as JSON, and the head of a page. */
#include "telemetry/admin/status_parts.h"

#include "core/base/metric/metric.h"
#include "core/event/clock.h"

static void add_server(struct json_out *json, const struct admin_process *process, bool ready) {
    json_open_member(json, "server", '{');
    json_text(json, "version", str_of(process->version));
    json_f64(json, "started", process->started_seconds);
    json_bool(json, "ready", ready);
    json_close(json, '}');
}

static void add_process(struct json_out *json, struct admin_process *process) {
    struct admin_machine_state state;
    admin_machine_read(&process->machine, &state);
    json_open_member(json, "process", '{');
    json_f64(json, "cpu_seconds", state.cpu_seconds);
    json_u64(json, "resident_bytes", state.resident_bytes);
    json_f64(json, "machine_utilization", state.utilization);
    json_i64(json, "connections", metric_read(METRIC_CONNECTIONS));
    json_i64(json, "requests_in_flight", metric_read(METRIC_REQUESTS_IN_FLIGHT));
    json_i64(json, "requests", metric_read(METRIC_REQUESTS_TOTAL));
    json_i64(json, "received_bytes", metric_read(METRIC_RECEIVED_BYTES_TOTAL));
    json_i64(json, "sent_bytes", metric_read(METRIC_SENT_BYTES_TOTAL));
    json_i64(json, "body_bytes_in_flight", metric_read(METRIC_BODY_BYTES_IN_FLIGHT));
    json_close(json, '}');
}

static void add_error(void *cookie, const char *protocol, enum status status, int64_t n) {
    struct json_out *json = cookie;
    json_open_element(json, '{');
    json_text(json, "protocol", str_of(protocol));
    json_text(json, "reason", str_of(status_name(status)));
    json_u64(json, "count", (uint64_t)n);
    json_close(json, '}');
}

void status_process_add(struct json_out *json, struct admin_process *process, bool ready) {
    json_u64(json, "now_ns", clock_now_ns());
    add_server(json, process, ready);
    add_process(json, process);
    json_open_member(json, "errors", '[');
    metric_visit_errors(add_error, json);
    json_close(json, ']');
}

void status_histogram_add(struct json_out *json, const char *name,
                          const struct metric_distribution *seen) {
    unsigned n = METRIC_BUCKETS;
    while (n > 0 && seen->buckets[n - 1] == 0) {
        n--;
    }
    json_open_member(json, name, '{');
    json_u64(json, "sum", seen->sum);
    json_open_member(json, "buckets", '[');
    for (unsigned i = 0; i < n; i++) {
        json_separate(json);
        buf_add_u64(json->out, seen->buckets[i]);
    }
    json_close(json, ']');
    json_close(json, '}');
}

/* The browser is told what the page needs, so that it refuses everything else: names of models and
 * endpoints are data, whatever is in them. */
void status_page_reply(struct http_exchange *exchange, struct str page) {
    static const struct http_field fields[] = {
        {STR("Content-Security-Policy"),
         STR("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
             "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'")},
        {STR("X-Content-Type-Options"), STR("nosniff")},
        {STR("Cache-Control"), STR("no-cache")},
    };
    struct piece piece = {page.ptr, page.len};
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = "text/html; charset=utf-8",
                                              .fields = fields,
                                              .n_fields = sizeof fields / sizeof fields[0],
                                              .pieces = &piece,
                                              .n_pieces = 1});
}
