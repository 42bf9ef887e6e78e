/* grpc.health.v1.Health. Check answers at once; a Watch call stays in its worker's list until it
 * ends, and remembers the state it sent last. States that come while one waits to be sent are left
 * out, but for the last one: a client that does not read them holds no more memory for each. */
#include "net/server/grpc/health.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "codec/protobuf/pb.h"
#include "core/base/compiler.h"

enum { SERVICE = 1, STATUS = 1 }; /* field numbers */

struct watch;

/* The Watch calls of one worker. */
struct watchers {
    struct grpc_health *health;
    struct worker *worker;
    LIST_HEAD(, watch) watches;
    struct watch *next; /* to be updated; NULL: no update is in progress */
    struct worker_msg msg;
    atomic_bool posted;  /* msg is posted, or runs */
    atomic_bool changed; /* states may have changed since the last update began */
};

/* Of those of a worker, which may be a hundred thousand, in one go: takes some 0.1 ms. */
enum { MAX_UPDATED = 128 };

struct grpc_health {
    struct grpc_health_options options;
    struct watchers *watchers; /* one per worker */
    atomic_bool shutting_down;
};

struct watch {
    struct grpc_call *call;
    struct watchers *watchers;
    LIST_ENTRY(watch) link;
    struct str service;
    enum grpc_health_state last_sent;
};

static enum grpc_health_state state_of(const struct grpc_health *health, struct str service) {
    return health->options.state_of(health->options.context, service);
}

static enum status read_service(struct str message, struct str *service, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *service = STR("");
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == SERVICE) {
            st = pb_get_string(&field, "service", service, err);
        }
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, "HealthCheckRequest", err)
                                            : st;
}

/* ---- Check ----------------------------------------------------------------------------------- */

enum status grpc_health_check(const struct grpc_health *health, struct str message, struct buf *out,
                              struct error *err) {
    struct str service;
    enum status st = read_service(message, &service, err);
    if (st != ST_OK) {
        return st;
    }
    enum grpc_health_state state = state_of(health, service);
    if (state == GRPC_HEALTH_SERVICE_UNKNOWN) {
        return error_set(err, ST_NOT_FOUND, "unknown service \"%.*s\"; expected %s",
                         STR_ARG(service), health->options.names);
    }
    pb_add_varint(out, STATUS, state);
    return out->failed ? error_no_memory(err, "the answer") : ST_OK;
}

static void answer_check(struct grpc_health *health, struct grpc_call *call) {
    struct error err;
    struct buf out;
    buf_init(&out, call->arena, 16);
    enum status st = grpc_health_check(health, call->message->data, &out, &err);
    grpc_message_free(call->message);
    if (st == ST_OK) {
        struct piece piece = {out.data, out.len};
        grpc_send(call, &piece, 1, NULL, NULL);
    }
    grpc_finish(call, st == ST_OK ? NULL : &err);
}

static void on_check_event(struct grpc_call *call, enum grpc_event event) {
    if (event == GRPC_MESSAGE) {
        answer_check(call->method->context, call);
    } else if (event == GRPC_CANCELLED) { /* unary: nothing happens between the message and the
                                             response */
        grpc_finish(call, &call->cancel_error);
    }
}

/* ---- Watch ----------------------------------------------------------------------------------- */

static void send_state(struct watch *watch) {
    static const char states[][2] = {{8, GRPC_HEALTH_UNKNOWN},
                                     {8, GRPC_HEALTH_SERVING},
                                     {8, GRPC_HEALTH_NOT_SERVING},
                                     {8, GRPC_HEALTH_SERVICE_UNKNOWN}};
    enum grpc_health_state state = state_of(watch->watchers->health, watch->service);
    if (state != watch->last_sent) {
        watch->last_sent = state;
        struct piece piece = {states[state], sizeof states[state]};
        grpc_send(watch->call, &piece, 1, NULL, NULL);
    }
}

/* Ends the call, which may last until the client has read what is queued; it gets no further
 * updates. */
static void end_watch(struct watch *watch, const struct error *err) {
    if (watch->watchers->next == watch) {
        watch->watchers->next = LIST_NEXT(watch, link);
    }
    LIST_REMOVE(watch, link);
    watch->call->user = NULL;
    grpc_finish(watch->call, err);
}

/* Sends the current state, if it changed, once the one before it was sent; on shutdown, ends the
 * call. */
static void update_watch(struct watch *watch) {
    struct error err;
    bool ends = atomic_load(&watch->watchers->health->shutting_down);
    if (ends || grpc_queued_messages(watch->call) == 0) {
        send_state(watch);
    }
    if (ends) {
        error_set(&err, ST_NOT_READY, "the server is shutting down");
        end_watch(watch, &err);
    }
}

static void post_update(struct watchers *watchers) {
    if (!atomic_exchange(&watchers->posted, true)) {
        worker_post(watchers->worker, &watchers->msg);
    }
}

/* A call that comes during an update is sent the state of then. */
static void run_update(struct worker_msg *msg) {
    struct watchers *watchers = CONTAINER_OF(msg, struct watchers, msg);
    struct watch *watch;
    if (!watchers->next) {
        atomic_store(&watchers->changed, false);
        watchers->next = LIST_FIRST(&watchers->watches);
    }
    for (int n = 0; n < MAX_UPDATED && (watch = watchers->next); n++) {
        watchers->next = LIST_NEXT(watch, link); /* the watch may leave the list */
        update_watch(watch);
    }
    atomic_store(&watchers->posted, false);
    if (watchers->next || atomic_load(&watchers->changed)) {
        post_update(watchers);
    }
}

void grpc_health_notify(struct grpc_health *health) {
    for (size_t i = 0; i < health->options.n_workers; i++) {
        atomic_store(&health->watchers[i].changed, true);
        post_update(&health->watchers[i]);
    }
}

void grpc_health_shutdown(struct grpc_health *health) {
    atomic_store(&health->shutting_down, true);
    grpc_health_notify(health);
}

static struct watchers *watchers_of(struct grpc_health *health, const struct grpc_call *call) {
    for (size_t i = 0; i < health->options.n_workers; i++) {
        if (health->watchers[i].worker == call->worker) {
            return &health->watchers[i];
        }
    }
    return NULL;
}

/* Returns: NULL with `err` filled. */
static struct watch *watch_new(struct grpc_health *health, struct grpc_call *call,
                               struct error *err) {
    struct watch *watch = arena_calloc(call->arena, 1, sizeof *watch);
    struct watchers *watchers = watchers_of(health, call);
    struct str service;
    if (!watch || !watchers) {
        error_no_memory(err, "the call");
        return NULL;
    }
    if (read_service(call->message->data, &service, err) != ST_OK) {
        return NULL;
    }
    watch->service = arena_dup(call->arena, service);
    if (!watch->service.ptr) {
        error_no_memory(err, "the call");
        return NULL;
    }
    watch->call = call;
    watch->watchers = watchers;
    LIST_INSERT_HEAD(&watchers->watches, watch, link);
    return watch;
}

static void watch_begin(struct grpc_health *health, struct grpc_call *call) {
    struct error err;
    struct watch *watch = watch_new(health, call, &err);
    grpc_message_free(call->message);
    if (!watch) {
        grpc_finish(call, &err);
        return;
    }
    call->user = watch;
    update_watch(watch);
}

/* Streaming because its response is: the client sends one message and half-closes. */
void grpc_health_watch(struct grpc_health *health, struct grpc_call *call, enum grpc_event event) {
    struct watch *watch = call->user;
    struct error err;
    switch (event) {
    case GRPC_BEGIN:
        grpc_read(call);
        break;
    case GRPC_MESSAGE:
        watch_begin(health, call);
        break;
    case GRPC_HALF_CLOSE: /* without a message */
        error_set(&err, ST_BAD_REQUEST, "this method takes one message, got none");
        grpc_finish(call, &err);
        break;
    case GRPC_CANCELLED:
        if (watch) {
            end_watch(watch, &call->cancel_error);
        } else {
            grpc_finish(call, &call->cancel_error);
        }
        break;
    case GRPC_WRITABLE:
        if (watch) {
            update_watch(watch);
        }
        break;
    case GRPC_END:
        break;
    }
}

static void on_watch_event(struct grpc_call *call, enum grpc_event event) {
    grpc_health_watch(call->method->context, call, event);
}

/* ---- creating and freeing -------------------------------------------------------------------- */

enum status grpc_health_new(const struct grpc_health_options *options, struct grpc_health **out,
                            struct error *err) {
    struct grpc_health *health = calloc(1, sizeof *health);
    struct watchers *watchers = calloc(options->n_workers + 1, sizeof *watchers);
    if (!health || !watchers) {
        free(health);
        free(watchers);
        return error_no_memory(err, "the health service");
    }
    *health = (struct grpc_health){.options = *options, .watchers = watchers};
    for (size_t i = 0; i < options->n_workers; i++) {
        watchers[i].health = health;
        watchers[i].worker = options->workers[i];
        watchers[i].msg = (struct worker_msg){.run = run_update};
    }
    *out = health;
    return ST_OK;
}

void grpc_health_free(struct grpc_health *health) {
    if (health) {
        free(health->watchers);
        free(health);
    }
}

void grpc_health_methods(struct grpc_health *health,
                         struct grpc_method methods[GRPC_HEALTH_METHODS]) {
    methods[0] = (struct grpc_method){
        .path = GRPC_HEALTH_CHECK, .on_event = on_check_event, .context = health};
    methods[1] = (struct grpc_method){
        .path = GRPC_HEALTH_WATCH, .on_event = on_watch_event, .streams = true, .context = health};
}
