/* The process and its errors as JSON, and the status page's response. */
#include "telemetry/admin/status_common.h"

#include "core/base/metric/metric.h"
#include "core/event/clock.h"

static void add_process(struct json_writer *json, struct admin_process *process) {
    struct admin_machine_stats state;
    admin_machine_read(&process->machine, &state);
    json_write_open(json, "process", '{');
    json_write_f64(json, "cpu_seconds", state.cpu_seconds);
    json_write_u64(json, "resident_bytes", state.resident_bytes);
    json_write_f64(json, "machine_utilization", state.utilization);
    json_write_i64(json, "connections", metric_read(METRIC_CONNECTIONS));
    json_write_i64(json, "requests_in_flight", metric_read(METRIC_REQUESTS_IN_FLIGHT));
    json_write_i64(json, "requests", metric_read(METRIC_REQUESTS_TOTAL));
    json_write_i64(json, "received_bytes", metric_read(METRIC_RECEIVED_BYTES_TOTAL));
    json_write_i64(json, "sent_bytes", metric_read(METRIC_SENT_BYTES_TOTAL));
    json_write_i64(json, "body_bytes_in_flight", metric_read(METRIC_BODY_BYTES_IN_FLIGHT));
    json_write_close(json, '}');
}

static void add_error(void *user, const char *protocol, enum status status, int64_t n) {
    struct json_writer *json = user;
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "protocol", str_of(protocol));
    json_write_string(json, "reason", str_of(status_name(status)));
    json_write_u64(json, "count", (uint64_t)n);
    json_write_close(json, '}');
}

void status_json_add_process(struct json_writer *json, struct admin_process *process, bool ready) {
    json_write_u64(json, "now_ns", clock_now_ns());
    json_write_open(json, "server", '{');
    json_write_string(json, "version", str_of(process->version));
    json_write_f64(json, "started", process->started_seconds);
    json_write_bool(json, "ready", ready);
    json_write_close(json, '}');
    add_process(json, process);
    json_write_open(json, "errors", '[');
    metric_visit_errors(add_error, json);
    json_write_close(json, ']');
}

static void add_memory_server(struct json_writer *json, const struct net_memory_server *server) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", str_of(server->name));
    json_write_u64(json, "responses", server->n_response_bytes);
    json_write_u64(json, "open_calls", server->n_call_bytes);
    json_write_u64(json, "connections", server->n_conn_bytes);
    json_write_u64(json, "bodies", server->n_body_bytes);
    json_write_u64(json, "waiting", server->n_waiting);
    json_write_close(json, '}');
}

static void add_memory_holder(struct json_writer *json, const struct net_memory_holder *holder) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "peer", str_of(holder->peer));
    json_write_string(json, "server", str_of(holder->server));
    json_write_u64(json, "responses", holder->n_response_bytes);
    json_write_u64(json, "open_calls", holder->n_call_bytes);
    json_write_u64(json, "connections", holder->n_conn_bytes);
    json_write_u64(json, "bodies", holder->n_body_bytes);
    json_write_u64(json, "pages", holder->n_page_bytes);
    if (holder->unread) {
        json_write_u64(json, "unread_ms", holder->unread_ns / 1000000);
    }
    json_write_close(json, '}');
}

void status_json_add_memory(struct json_writer *json, const struct net_memory_report *memory) {
    json_write_open(json, "memory", '{');
    json_write_u64(json, "limit", memory->limit);
    json_write_u64(json, "responses", memory->n_response_bytes);
    json_write_u64(json, "open_calls", memory->n_call_bytes);
    json_write_u64(json, "connections", memory->n_conn_bytes);
    json_write_u64(json, "requests", memory->n_request_bytes);
    json_write_u64(json, "pages", memory->n_page_bytes);
    json_write_u64(json, "bodies", memory->n_body_bytes);
    json_write_u64(json, "cache", memory->n_cache_bytes);
    json_write_open(json, "servers", '[');
    for (size_t i = 0; i < memory->n_servers; i++) {
        add_memory_server(json, &memory->servers[i]);
    }
    json_write_close(json, ']');
    json_write_u64(json, "busy_workers", memory->n_busy_workers);
    json_write_open(json, "holders", '[');
    for (size_t i = 0; i < memory->n_holders; i++) {
        add_memory_holder(json, &memory->holders[i]);
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
}

void status_json_add_histogram(struct json_writer *json, const char *name,
                               const struct metric_distribution *distribution) {
    unsigned n = METRIC_BUCKETS;
    while (n > 0 && distribution->buckets[n - 1] == 0) {
        n--;
    }
    json_write_open(json, name, '{');
    json_write_u64(json, "sum", distribution->sum);
    json_write_open(json, "buckets", '[');
    for (unsigned i = 0; i < n; i++) {
        json_write_u64(json, JSON_ELEMENT, distribution->buckets[i]);
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
}

/* The Content-Security-Policy allows only what the page needs: names of models and endpoints are
 * untrusted data. */
void status_page_reply(struct http_exchange *exchange, struct str page, struct str end) {
    static const struct http_field fields[] = {
        {STR("Content-Security-Policy"),
         STR("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
             "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'")},
        {STR("X-Content-Type-Options"), STR("nosniff")},
        {STR("Cache-Control"), STR("no-cache")},
    };
    struct piece pieces[] = {{page.ptr, page.len}, {end.ptr, end.len}};
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = "text/html; charset=utf-8",
                                              .fields = fields,
                                              .n_fields = sizeof fields / sizeof fields[0],
                                              .pieces = pieces,
                                              .n_pieces = end.len > 0 ? 2 : 1});
}
