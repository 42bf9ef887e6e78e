/* The paths of the admin listener, and the pages /debug/state and /status.json; metrics are in
 * metrics.c. */
#include "serve/admin/routes.h"

#include "codec/kserve/metadata.h"
#include "serve/repository/readiness.h"
#include "serve/repository/version_state.h"
#include "serve/scheduler/statistics/statistics.h"
#include "telemetry/admin/http_text.h"
#include "telemetry/admin/status_common.h"

/* ---- the models in /debug/state -------------------------------------------------------------- */

/* Active versions in full, idle ones by name. */
enum {
    MAX_ACTIVE_MODELS = 200, /* versions with requests queued or running */
    MAX_IDLE_MODELS = 50,    /* names of idle versions */
};

struct models {
    struct buf *out;
    size_t n_active, n_idle;
};

static bool is_active(struct model_version *version) {
    uint64_t n_queued, n_running, n_instances;
    model_version_gauges(version, &n_queued, &n_running, &n_instances);
    return n_queued + n_running > 0;
}

static void print_active(void *user, const struct repository_entry *entry) {
    struct models *models = user;
    if (entry->version && is_active(entry->version) && models->n_active++ < MAX_ACTIVE_MODELS) {
        model_version_dump(entry->version, models->out);
    }
}

static void print_idle(void *user, const struct repository_entry *entry) {
    struct models *models = user;
    if (entry->version && is_active(entry->version)) {
        return;
    }
    if (models->n_idle++ < MAX_IDLE_MODELS) {
        buf_printf(models->out, "%s%.*s %llu%s%s",
                   models->n_idle > 1 ? ", " : "idle: ", STR_ARG(entry->model),
                   (unsigned long long)entry->number, entry->version ? "" : " ",
                   entry->version ? "" : repository_phase_name(entry->phase));
    }
}

void admin_models_print(void *context, struct buf *out) {
    struct repository *repository = context;
    struct models models = {.out = out};
    repository_visit(repository, print_active, &models);
    if (models.n_active > MAX_ACTIVE_MODELS) {
        buf_printf(out, "and %zu more models\n", models.n_active - MAX_ACTIVE_MODELS);
    }
    repository_visit(repository, print_idle, &models);
    if (models.n_idle > MAX_IDLE_MODELS) {
        buf_printf(out, " and %zu more", models.n_idle - MAX_IDLE_MODELS);
    }
    if (models.n_idle > 0) {
        buf_add_char(out, '\n');
    }
}

/* ---- /status.json ---------------------------------------------------------------------------- */

/* The models and their counters, which are totals: the page computes rates from two readings. The
 * buckets of a batch-size histogram count rows. */

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
    json_write_open(json, "failed", '{');
    for (int i = 0; i < STATISTICS_REASONS; i++) {
        json_write_u64(json, statistics_reason_name((enum statistics_reason)i),
                       statistics.failed[i]);
    }
    json_write_close(json, '}');
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

static void print_status(void *context, const struct net_memory_report *memory, struct buf *out) {
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

/* ---- paths ----------------------------------------------------------------------------------- */

static void answer_metrics(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_metrics_reply(api->metrics, exchange);
}

static void answer_status(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_status_reply(&api->state, exchange, print_status, api);
}

static void answer_state(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_state_reply(&api->state, exchange);
}

static void answer_live(struct http_exchange *exchange, void *context) {
    const struct admin_api *api = context;
    bool live = loop_health_is_live(api->loops);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_live_print(&body, live);
    http_json_reply(exchange, live ? 200 : 503, &body);
}

bool admin_api_is_ready(const struct admin_api *api) {
    return server_is_ready(api->metrics->repository, api->loops, api->draining);
}

static void answer_ready(struct http_exchange *exchange, void *context) {
    const struct admin_api *api = context;
    bool ready = admin_api_is_ready(api);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_ready_print(&body, ready);
    http_json_reply(exchange, ready ? 200 : 503, &body);
}

static void answer_page(struct http_exchange *exchange, void *context) {
    (void)context;
    status_page_reply(exchange, status_page(), STR(""));
}

static const struct admin_route ROUTES[] = {
    {"/", answer_page, false},
    {"/metrics", answer_metrics, false},
    {"/status.json", answer_status, true},
    {"/debug/state", answer_state, true},
    {"/v2/health/live", answer_live, false},
    {"/v2/health/ready", answer_ready, false},
};

struct http_router admin_api_router(struct admin_api *api) {
    api->routes = (struct admin_routes){
        .items = ROUTES, .n = sizeof ROUTES / sizeof ROUTES[0], .context = api, .web = api->web};
    return admin_routes_router(&api->routes);
}
