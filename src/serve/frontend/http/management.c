/* The extensions with which clients change the server: log and trace settings, shared memory, and
 * the model repository. */
#include <assert.h>

#include "codec/kserve/repository.h"
#include "core/base/compiler.h"
#include "core/event/helper_pool.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/http/coding.h"
#include "serve/frontend/http/routes.h"
#include "serve/frontend/management.h"
#include "serve/frontend/shm_registry.h"
#include "serve/trace/tracer.h"
#include "telemetry/admin/http_text.h"

/* ---- settings -------------------------------------------------------------------------------- */

/* GET returns the settings, POST changes them and returns the new ones. */
enum status http_answer_logging(struct http_api *api, struct http_exchange *exchange,
                                const struct v2_path *path, struct buf *out, struct error *err) {
    (void)path;
    if (str_is(exchange->head.method, "POST")) {
        struct v2_log_settings wanted;
        enum status st =
            v2_log_decode(exchange->arena, exchange->body, &api->services.limits, &wanted, err);
        log_settings_apply(&wanted); /* settings before the invalid one are applied */
        if (st != ST_OK) {
            return st;
        }
    }
    struct v2_log_settings now = log_settings_get();
    v2_log_print(out, &now);
    return ST_OK;
}

/* As http_answer_logging. */
enum status http_answer_trace(struct http_api *api, struct http_exchange *exchange,
                              const struct v2_path *path, struct buf *out, struct error *err) {
    struct str model = path->model.ptr ? path->model : STR("");
    struct v2_trace_update wanted;
    if (trace_model_check(api->services.repository, model, err) != ST_OK) {
        return err->status;
    }
    if (str_is(exchange->head.method, "POST") &&
        (v2_trace_decode(exchange->arena, exchange->body, &api->services.limits, &wanted, err) !=
             ST_OK ||
         tracer_change_settings(api->services.tracer, model, &wanted, err) != ST_OK)) {
        return err->status;
    }
    struct v2_trace_settings now = tracer_get_settings(api->services.tracer, model);
    v2_trace_print(out, &now);
    return ST_OK;
}

/* ---- shared memory --------------------------------------------------------------------------- */

static void add_region(void *user, const struct v2_shared_memory_region *region) {
    struct json_writer *json = user;
    v2_shared_memory_write(json, region);
}

enum status http_answer_memory_status(struct http_api *api, struct http_exchange *exchange,
                                      const struct v2_path *path, struct buf *out,
                                      struct error *err) {
    struct json_writer json = {.out = out};
    (void)exchange;
    json_write_open(&json, JSON_ELEMENT, '[');
    enum status st = shm_visit_regions(api->services.shared, path->region, add_region, &json, err);
    json_write_close(&json, ']');
    return st;
}

enum status http_answer_memory_register(struct http_api *api, struct http_exchange *exchange,
                                        const struct v2_path *path, struct buf *out,
                                        struct error *err) {
    struct v2_shared_memory_region region;
    (void)out;
    enum status st = v2_shared_memory_register_decode(exchange->arena, exchange->body,
                                                      &api->services.limits, &region, err);
    region.name = path->region;
    return st == ST_OK ? shm_register_region(api->services.shared, &region, err) : st;
}

enum status http_answer_memory_unregister(struct http_api *api, struct http_exchange *exchange,
                                          const struct v2_path *path, struct buf *out,
                                          struct error *err) {
    (void)exchange, (void)out;
    return shm_unregister_region(api->services.shared, path->region, err);
}

/* No region can be registered. Clients ask for the status, and unregister all, before they
 * begin. */
enum status http_answer_cuda_status(struct http_api *api, struct http_exchange *exchange,
                                    const struct v2_path *path, struct buf *out,
                                    struct error *err) {
    (void)api, (void)exchange;
    if (path->region.len > 0) {
        return error_set(err, ST_NOT_FOUND, V2_CUDA_MEMORY_NO_REGION);
    }
    buf_add_str(out, STR("[]"));
    return ST_OK;
}

enum status http_answer_cuda_unregister(struct http_api *api, struct http_exchange *exchange,
                                        const struct v2_path *path, struct buf *out,
                                        struct error *err) {
    (void)api, (void)exchange, (void)path, (void)out, (void)err;
    return ST_OK;
}

/* ---- the model repository -------------------------------------------------------------------- */

/* The repository makes a change on a thread of its own, and the response is sent when it is done. A
 * client that disconnects does not cancel the change.
 *
 * Lives in the exchange's arena, which is freed after the response. */
struct http_repository {
    struct repository_change change;
    struct v2_repository_request request;
    struct http_exchange *exchange;
    struct repository *repository;
    struct http_api *api;
    struct helper_job job; /* a body with files is decoded on a helper thread, */
    struct arena *arena;   /* into this arena; NULL: the exchange's */
    struct error error;    /* of decoding; ST_OK: none */
};

static void answer_index(struct http_repository *self) {
    struct http_exchange *exchange = self->exchange;
    if (shared_page_is_large(self->api->services.pages, self->repository, INDEX_ENTRY_BYTES)) {
        arena_free(self->arena);
        self->arena = NULL;
        http_page_send(self->api, exchange, self->request.ready ? PAGE_READY_INDEX : PAGE_INDEX,
                       "application/json");
        return;
    }
    struct buf message;
    buf_init(&message, exchange->arena, 1024);
    document_encode_index(self->repository, self->request.ready, &message);
    http_document_reply(exchange, V2_GRPC_INDEX, &message);
}

static void on_done(struct repository_change *change) {
    struct http_repository *self = CONTAINER_OF(change, struct http_repository, change);
    if (change->error.status != ST_OK) {
        http_reply_error(self->exchange, &change->error, NULL, 0);
    } else if (change->action == REPOSITORY_SCAN) {
        answer_index(self);
    } else {
        http_reply(self->exchange, &(struct http_reply){.status = 200});
    }
}

static enum status decode_request(struct http_repository *self, struct arena *arena,
                                  struct error *err) {
    struct http_exchange *exchange = self->exchange;
    struct json_limits limits = self->api->services.limits;
    limits.max_json_size = self->api->max_body_size; /* the body may contain model files */
    switch (self->change.action) {
    case REPOSITORY_LOAD:
        return v2_repository_load_decode(arena, exchange->body, &limits, &self->request, err);
    case REPOSITORY_UNLOAD:
        return v2_repository_unload_decode(arena, exchange->body, &limits, &self->request, err);
    case REPOSITORY_SCAN:
        break;
    }
    return v2_repository_index_decode(arena, exchange->body, &limits, &self->request, err);
}

/* Thread: the worker, or a helper. */
static void decode(struct http_repository *self) {
    struct arena *arena = self->arena ? self->arena : self->exchange->arena;
    struct error *err = &self->error;
    err->status = ST_OK;
    enum status st = decode_request(self, arena, err);
    if (st == ST_OK) {
        st = repository_change_from_request(arena, &self->request, &self->change, err);
    }
    assert(st == err->status);
    (void)st;
}

static void start_change(struct http_repository *self) {
    if (self->error.status != ST_OK) {
        http_reply_error(self->exchange, &self->error, NULL, 0);
        return;
    }
    repository_change(self->repository, &self->change);
}

static void run_decode(struct helper_job *job) {
    decode(CONTAINER_OF(job, struct http_repository, job));
}

static void on_decoded(struct helper_job *job) {
    start_change(CONTAINER_OF(job, struct http_repository, job));
}

/* Estimates for a slow core, per byte: JSON is parsed, and files in it are base64. */
enum { DECODE_NS = 8 };

static void on_body(struct http_exchange *exchange, void *context) {
    const struct http_api *api = context;
    struct http_repository *self = exchange->user;
    struct helper_pool *helpers = api->services.helpers;
    if (exchange->body.len * DECODE_NS >= HELPER_MIN_NS && helpers) {
        self->arena = arena_new_beside(exchange->arena);
    }
    if (self->arena) {
        self->job =
            (struct helper_job){.worker = exchange->worker,
                                .run = run_decode,
                                .done = on_decoded,
                                .client = net_peer_client(memory_account_peer(exchange->account)),
                                .ns = exchange->body.len * DECODE_NS};
        helper_pool_submit(helpers, &self->job);
        return;
    }
    decode(self);
    start_change(self);
}

static void on_end(struct http_exchange *exchange, void *context) {
    struct http_repository *self = exchange->user;
    (void)context;
    arena_free(self->arena);
}

static const struct http_handler change_handler = {.on_body = on_body, .on_end = on_end};

void http_repository_begin(struct http_api *api, struct http_exchange *exchange,
                           const struct v2_path *path) {
    struct error err;
    struct http_repository *self = arena_calloc(exchange->arena, 1, sizeof(*self));
    enum repository_action act = path->resource == V2_REPOSITORY_LOAD     ? REPOSITORY_LOAD
                                 : path->resource == V2_REPOSITORY_UNLOAD ? REPOSITORY_UNLOAD
                                                                          : REPOSITORY_SCAN;
    if (!self) {
        error_no_memory(&err, "the request");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    enum status st = http_coding_of_body(&exchange->head, &exchange->plan.coding, &err);
    if (path->repository.ptr && act != REPOSITORY_SCAN) {
        st = error_set(&err, ST_UNSUPPORTED, "naming a repository is not supported");
    }
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    *self = (struct http_repository){
        .change = {.action = act,
                   .model = path->model,
                   .worker = exchange->worker,
                   .done = on_done},
        .exchange = exchange,
        .repository = api->services.repository,
        .api = api,
    };
    if (act == REPOSITORY_LOAD) {
        exchange->plan.max_bytes = api->max_body_size; /* may contain model files */
    } else {
        http_limit_body(exchange);
    }
    exchange->user = self;
    exchange->handler = &change_handler;
}
