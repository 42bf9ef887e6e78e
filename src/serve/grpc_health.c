/* grpc.health.v1.Health: the state of the server, of its inference service, and of each model by
 * its name. Who watches is told by a message to each worker when something may have changed. */
#include "serve/grpc_method.h"
#include "wire/pb.h"

/* HealthCheckResponse.ServingStatus */
enum serving { UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN };

enum { SERVICE = 1, STATUS = 1 };

static enum status read_service(struct str message, struct str *service, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *service = STR("");
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == SERVICE) {
            st = pb_take_string(&field, "service", service, err);
        }
    }
    return st == ST_OK && reader.broken ? pb_broken(&reader, "HealthCheckRequest", err) : st;
}

static bool is_server(struct str service) {
    return service.len == 0 || str_is(service, "inference.GRPCInferenceService");
}

static enum serving state_of(struct grpc_api *api, struct str service) {
    if (is_server(service)) {
        return grpc_api_is_ready(api) ? SERVING : NOT_SERVING;
    }
    struct model_version *version;
    enum status st =
        repository_find(api->options.repository, service, str_make(NULL, 0), &version, NULL);
    if (st == ST_OK) {
        model_version_unref(version);
        bool draining = atomic_load_explicit(&api->draining, memory_order_relaxed);
        return draining ? NOT_SERVING : SERVING;
    }
    return st == ST_NOT_READY ? NOT_SERVING : SERVICE_UNKNOWN;
}

static enum status answer_check(struct grpc_api *api, struct grpc_call *call, struct str message,
                                struct buf *out, struct error *err) {
    (void)call;
    struct str service;
    enum status st = read_service(message, &service, err);
    if (st != ST_OK) {
        return st;
    }
    enum serving state = state_of(api, service);
    if (state == SERVICE_UNKNOWN) {
        return error_set(err, ST_UNKNOWN_MODEL,
                         "there is no service and no model \"%.*s\" (empty: the server)",
                         STR_ARG(service));
    }
    pb_add_varint(out, STATUS, state);
    return ST_OK;
}

/* ---- Watch ----------------------------------------------------------------------------------- */

struct grpc_watch {
    struct grpc_call *call;
    struct grpc_watchers *watchers;
    struct grpc_watch *next;
    struct str service;
    enum serving told;
};

static void tell(struct grpc_watch *watch) {
    static const char states[][2] = {
        {8, UNKNOWN}, {8, SERVING}, {8, NOT_SERVING}, {8, SERVICE_UNKNOWN}};
    enum serving state = state_of(watch->watchers->api, watch->service);
    if (state != watch->told) {
        watch->told = state;
        struct piece piece = {states[state], sizeof states[state]};
        grpc_send(watch->call, &piece, 1, NULL, NULL);
    }
}

static void run_tell(struct worker_msg *msg) {
    struct grpc_watchers *watchers =
        (struct grpc_watchers *)(void *)((char *)msg - offsetof(struct grpc_watchers, msg));
    atomic_store(&watchers->posted, false);
    for (struct grpc_watch *watch = watchers->first; watch; watch = watch->next) {
        tell(watch);
    }
}

void grpc_watchers_init(struct grpc_watchers *watchers, struct grpc_api *api,
                        struct worker *worker) {
    watchers->api = api;
    watchers->worker = worker;
    watchers->msg = (struct worker_msg){.run = run_tell};
}

void grpc_watchers_tell(struct grpc_watchers *watchers) {
    if (!atomic_exchange(&watchers->posted, true)) {
        worker_post(watchers->worker, &watchers->msg);
    }
}

static struct grpc_watchers *watchers_of(const struct grpc_call *call) {
    struct grpc_api *api = grpc_context_of(call)->api;
    for (size_t i = 0; i < api->options.n_workers; i++) {
        if (api->options.workers[i] == call->worker) {
            return &api->watchers[i];
        }
    }
    return NULL;
}

static void leave(struct grpc_watch *watch) {
    struct grpc_watch **at = &watch->watchers->first;
    while (*at != watch) {
        at = &(*at)->next;
    }
    *at = watch->next;
}

/* Returns: NULL with `err` filled. */
static struct grpc_watch *watch_new(struct grpc_call *call, struct error *err) {
    struct grpc_watch *watch = arena_calloc(call->arena, 1, sizeof *watch);
    struct grpc_watchers *watchers = watchers_of(call);
    struct str service;
    if (!watch || !watchers) {
        error_set(err, ST_NO_MEMORY, "no memory for the call");
        return NULL;
    }
    if (read_service(call->message->data, &service, err) != ST_OK) {
        return NULL;
    }
    watch->service = arena_dup(call->arena, service);
    if (!watch->service.ptr) {
        error_set(err, ST_NO_MEMORY, "no memory for the call");
        return NULL;
    }
    watch->call = call;
    watch->watchers = watchers;
    watch->next = watchers->first;
    watchers->first = watch;
    return watch;
}

static void watch_begin(struct grpc_call *call) {
    struct error err;
    struct grpc_watch *watch = watch_new(call, &err);
    grpc_message_free(call->message);
    if (!watch) {
        grpc_finish(call, &err);
        return;
    }
    call->user = watch;
    tell(watch);
}

/* Streaming, because the answer is: the client sends one message and closes its side. */
static void step_watch(struct grpc_call *call, enum grpc_event event) {
    struct grpc_watch *watch = call->user;
    struct error err;
    switch (event) {
    case GRPC_BEGIN:
        grpc_read(call);
        break;
    case GRPC_MESSAGE:
        watch_begin(call);
        break;
    case GRPC_HALF_CLOSE: /* before any message */
        error_set(&err, ST_BAD_REQUEST, "this method takes one message, got none");
        grpc_finish(call, &err);
        break;
    case GRPC_CANCELLED:
        grpc_finish(call, &call->cancelled);
        break;
    case GRPC_END:
        if (watch) {
            leave(watch);
        }
        break;
    case GRPC_WRITABLE:
        break;
    }
}

const struct grpc_row *grpc_health_rows(size_t *n) {
    static const struct grpc_row rows[] = {
        {.path = "/grpc.health.v1.Health/Check", .group = KEYS_HEALTH, .answer = answer_check},
        {.path = "/grpc.health.v1.Health/Watch",
         .group = KEYS_HEALTH,
         .step = step_watch,
         .streams = true},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
