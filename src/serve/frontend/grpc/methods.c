/* The method table of the gRPC front end, made of the tables of its services, and unary methods
 * that answer at once. */
#include "serve/frontend/grpc/methods.h"

#include <stdlib.h>

#include "serve/frontend/grpc/method.h"
#include "serve/frontend/header_forward.h"
#include "serve/frontend/keys.h"
#include "serve/frontend/picked.h"

bool grpc_api_is_ready(const struct grpc_api *api) {
    return !atomic_load_explicit(&api->draining, memory_order_relaxed) &&
           loop_health_is_ready(api->options.services.loops) &&
           repository_is_ready(api->options.services.repository);
}

void grpc_step_unary(struct grpc_call *call, enum grpc_event event) {
    const struct grpc_method_context *context = grpc_method_context_of(call);
    if (event == GRPC_CANCELLED) { /* cannot happen between the message and the answer */
        grpc_finish(call, &call->cancel_error);
    }
    if (event != GRPC_MESSAGE) {
        return;
    }
    struct grpc_message *message = call->message;
    struct error err;
    struct buf out;
    buf_init(&out, call->arena, 256);
    enum status st = context->entry->unary(context->api, call, message->data, &out, &err);
    grpc_message_free(message);
    if (st == ST_OK && out.failed) {
        st = error_no_memory(&err, "the answer");
    }
    if (st == ST_OK) {
        struct piece piece = {out.data, out.len};
        grpc_send(call, &piece, 1, NULL, NULL);
    }
    grpc_finish(call, st == ST_OK ? NULL : &err);
}

/* A keys_field_find over the metadata. */
static size_t find_metadata(const void *request, const char *name, struct str *value) {
    size_t n;
    *value = grpc_find_field(request, name, &n);
    return n;
}

enum status grpc_api_admit(const struct grpc_call *call, void *keys, struct error *err) {
    const struct grpc_method_context *context = call->method->context;
    return keys_authorize(keys, context->entry->group, find_metadata, call, err);
}

bool grpc_api_keeps_field(struct str name, void *user) {
    const struct grpc_api *api = user;
    return str_is(name, "traceparent") || str_is(name, "tracestate") ||
           str_is(name, GRPC_STRICT_ERRORS_FIELD) || str_is(name, PICKED_FIELD) ||
           keys_read_field(api->options.keys, name) ||
           header_forward_matches_grpc(api->options.forward, name);
}

static void add_methods(struct grpc_api *api, const struct grpc_method_entry *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct grpc_method_context *context = &api->contexts[api->n_methods];
        *context = (struct grpc_method_context){api, &rows[i]};
        api->methods[api->n_methods++] =
            (struct grpc_method){.path = rows[i].path,
                                 .on_event = rows[i].on_event ? rows[i].on_event : grpc_step_unary,
                                 .streams = rows[i].streams,
                                 .small = !rows[i].large,
                                 .align_at = rows[i].align_at,
                                 .context = context};
    }
}

typedef const struct grpc_method_entry *service_methods(size_t *n);

static service_methods *const SERVICES[] = {
    grpc_infer_method_table,      grpc_metadata_method_table,   grpc_health_method_table,
    grpc_reflection_method_table, grpc_repository_method_table, grpc_logging_method_table,
    grpc_memory_method_table,     grpc_trace_method_table};

enum { N_SERVICES = sizeof SERVICES / sizeof SERVICES[0] };

enum status grpc_api_new(const struct grpc_api_options *options, struct grpc_api **out,
                         struct error *err) {
    size_t total = 0;
    for (size_t i = 0; i < N_SERVICES; i++) {
        size_t n;
        SERVICES[i](&n);
        total += n;
    }
    struct grpc_api *api = calloc(1, sizeof *api);
    struct grpc_health_options health = {.state_of = grpc_api_health_state,
                                         .context = api,
                                         .names = "a model, or nothing for the server",
                                         .workers = options->workers,
                                         .n_workers = options->n_workers};
    if (api) {
        api->options = *options;
        api->methods = calloc(total, sizeof *api->methods);
        api->contexts = calloc(total, sizeof *api->contexts);
    }
    if (!api || !api->methods || !api->contexts ||
        grpc_health_new(&health, &api->health, err) != ST_OK) {
        grpc_api_free(api);
        return error_no_memory(err, "the gRPC front end");
    }
    for (size_t i = 0; i < N_SERVICES; i++) {
        size_t n;
        const struct grpc_method_entry *rows = SERVICES[i](&n);
        add_methods(api, rows, n);
    }
    *out = api;
    return ST_OK;
}

void grpc_api_free(struct grpc_api *api) {
    if (api) {
        free(api->methods);
        free(api->contexts);
        grpc_health_free(api->health);
        free(api);
    }
}

const struct grpc_method *grpc_api_methods(const struct grpc_api *api, size_t *n) {
    *n = api->n_methods;
    return api->methods;
}

void grpc_api_drain(struct grpc_api *api) {
    atomic_store_explicit(&api->draining, true, memory_order_relaxed);
    grpc_health_shutdown(api->health);
}

void grpc_api_notify_health_watchers(struct grpc_api *api) {
    grpc_health_notify(api->health);
}
