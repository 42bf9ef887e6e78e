/* The table of methods, put together from the rows of the services. */
#include "serve/frontend/grpc/api.h"

#include <stdlib.h>

#include "serve/frontend/grpc/method.h"
#include "serve/frontend/keys.h"

bool grpc_api_is_ready(const struct grpc_api *api) {
    return !atomic_load_explicit(&api->draining, memory_order_relaxed) &&
           repository_is_ready(api->options.repository);
}

/* The step of every method that answers at once. */
static void step_answer(struct grpc_call *call, enum grpc_event event) {
    const struct grpc_context *context = grpc_context_of(call);
    if (event == GRPC_CANCELLED) { /* between the message and the answer nothing can be */
        grpc_finish(call, &call->cancelled);
    }
    if (event != GRPC_MESSAGE) {
        return;
    }
    struct grpc_message *message = call->message;
    struct error err;
    struct buf out;
    buf_init(&out, call->arena, 256);
    enum status st = context->row->answer(context->api, call, message->data, &out, &err);
    grpc_message_free(message);
    if (st == ST_OK && out.failed) {
        st = error_set(&err, ST_NO_MEMORY, "no memory for the answer");
    }
    if (st == ST_OK) {
        struct piece piece = {out.data, out.len};
        grpc_send(call, &piece, 1, NULL, NULL);
    }
    grpc_finish(call, st == ST_OK ? NULL : &err);
}

/* A keys_field_find. */
static size_t find_metadata(const void *request, const char *name, struct str *value) {
    size_t n;
    *value = grpc_find(request, name, &n);
    return n;
}

enum status grpc_api_admit(const struct grpc_call *call, void *keys, struct error *err) {
    const struct grpc_context *context = call->method->context;
    return keys_admit(keys, context->row->group, find_metadata, call, err);
}

static void add_rows(struct grpc_api *api, const struct grpc_row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct grpc_context *context = &api->contexts[api->n_methods];
        *context = (struct grpc_context){api, &rows[i]};
        api->methods[api->n_methods++] =
            (struct grpc_method){.path = rows[i].path,
                                 .step = rows[i].step ? rows[i].step : step_answer,
                                 .streams = rows[i].streams,
                                 .align_at = rows[i].align_at,
                                 .context = context};
    }
}

typedef const struct grpc_row *rows_of(size_t *n);

static rows_of *const SERVICES[] = {grpc_infer_rows,      grpc_metadata_rows, grpc_health_rows,
                                    grpc_reflection_rows, grpc_stats_rows,    grpc_repository_rows,
                                    grpc_logging_rows,    grpc_memory_rows,   grpc_trace_rows};

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
    struct grpc_health_options health = {.state_of = grpc_api_health_of,
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
        return error_set(err, ST_NO_MEMORY, "no memory for the gRPC front end");
    }
    for (size_t i = 0; i < N_SERVICES; i++) {
        size_t n;
        const struct grpc_row *rows = SERVICES[i](&n);
        add_rows(api, rows, n);
    }
    *out = api;
    return ST_OK;
}

void grpc_api_free(struct grpc_api *api) {
    if (api) {
        free(api->methods);
        free(api->contexts);
        grpc_health_free(api->health);
        by_worker_free_all(&api->seen);
        free(api);
    }
}

const struct grpc_method *grpc_api_methods(const struct grpc_api *api, size_t *n) {
    *n = api->n_methods;
    return api->methods;
}

void grpc_api_drain(struct grpc_api *api) {
    atomic_store_explicit(&api->draining, true, memory_order_relaxed);
    grpc_health_end(api->health);
}

void grpc_api_changed(struct grpc_api *api) {
    grpc_health_changed(api->health);
}
