/* The method table of the gRPC front end, and unary methods that answer at once. */
#include "serve/frontend/grpc/methods.h"

#include <stdlib.h>

#include "net/server/grpc/reflect.h"
#include "serve/frontend/header_forward.h"
#include "serve/repository/readiness.h"

bool grpc_api_is_ready(const struct grpc_api *api) {
    const struct inference_services *services = &api->options.services;
    return server_is_ready(services->repository, services->loops, &api->draining);
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
    const struct grpc_api_options *options = &context->api->options;
    enum restricted_category category = context->entry->category;
    enum status st = keys_authorize(keys, context->entry->group, find_metadata, call, err);
    if (st == ST_OK) {
        st = restrictions_check(options->restrictions, category, find_metadata, call, err);
    }
    if (st == ST_OK && call->is_on_http_port) {
        st = restrictions_check(options->http_restrictions, category, find_metadata, call, err);
    }
    return st;
}

bool grpc_api_keeps_field(struct str name, void *user) {
    const struct grpc_api *api = user;
    return str_is(name, "traceparent") || str_is(name, "tracestate") ||
           str_is(name, GRPC_STRICT_ERRORS_FIELD) || str_is(name, PICKED_FIELD) ||
           keys_read_field(api->options.keys, name) ||
           restrictions_read_field(api->options.restrictions, name) ||
           restrictions_read_field(api->options.http_restrictions, name) ||
           header_forward_matches_grpc(api->options.forward, name);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define SERVICE "/inference.GRPCInferenceService/"

static const struct grpc_method_entry METHODS[] = {
    {SERVICE "ModelInfer", KEYS_INFER, RESTRICTED_INFERENCE, .on_event = grpc_step_infer,
     .large = true, .align_at = v2_grpc_raw_offset},
    {SERVICE "ModelStreamInfer", KEYS_INFER, RESTRICTED_INFERENCE,
     .on_event = grpc_step_infer_stream, .streams = true, .large = true,
     .align_at = v2_grpc_raw_offset},
    {SERVICE "ServerLive", KEYS_HEALTH, RESTRICTED_HEALTH, .unary = grpc_answer_live},
    {SERVICE "ServerReady", KEYS_HEALTH, RESTRICTED_HEALTH, .unary = grpc_answer_ready},
    {SERVICE "ServerMetadata", KEYS_METADATA, RESTRICTED_METADATA, .unary = grpc_answer_server},
    {SERVICE "ModelReady", KEYS_HEALTH, RESTRICTED_HEALTH, .unary = grpc_answer_model_ready},
    {SERVICE "ModelMetadata", KEYS_METADATA, RESTRICTED_METADATA, .unary = grpc_answer_model},
    {SERVICE "ModelConfig", KEYS_METADATA, RESTRICTED_MODEL_CONFIG, .unary = grpc_answer_config},
    {SERVICE "ModelStatistics", KEYS_METADATA, RESTRICTED_STATISTICS,
     .unary = grpc_answer_statistics, .on_event = grpc_step_statistics},
    {SERVICE "RepositoryIndex", KEYS_METADATA, RESTRICTED_MODEL_REPOSITORY,
     .on_event = grpc_step_index},
    {SERVICE "RepositoryModelLoad", KEYS_CONTROL, RESTRICTED_MODEL_REPOSITORY,
     .on_event = grpc_step_load, .large = true},
    {SERVICE "RepositoryModelUnload", KEYS_CONTROL, RESTRICTED_MODEL_REPOSITORY,
     .on_event = grpc_step_unload},
    {SERVICE "SystemSharedMemoryStatus", KEYS_CONTROL, RESTRICTED_SHARED_MEMORY,
     .unary = grpc_answer_memory_status},
    {SERVICE "SystemSharedMemoryRegister", KEYS_CONTROL, RESTRICTED_SHARED_MEMORY,
     .unary = grpc_answer_memory_register},
    {SERVICE "SystemSharedMemoryUnregister", KEYS_CONTROL, RESTRICTED_SHARED_MEMORY,
     .unary = grpc_answer_memory_unregister},
    {SERVICE "CudaSharedMemoryStatus", KEYS_CONTROL, RESTRICTED_SHARED_MEMORY,
     .unary = grpc_answer_cuda_status},
    {SERVICE "CudaSharedMemoryRegister", KEYS_CONTROL, RESTRICTED_SHARED_MEMORY,
     .unary = grpc_refuse_cuda},
    {SERVICE "CudaSharedMemoryUnregister", KEYS_CONTROL, RESTRICTED_SHARED_MEMORY,
     .unary = grpc_answer_cuda_unregister},
    {SERVICE "LogSettings", KEYS_CONTROL, RESTRICTED_LOGGING, .unary = grpc_answer_log_settings},
    {SERVICE "TraceSetting", KEYS_CONTROL, RESTRICTED_TRACE, .unary = grpc_answer_trace_setting},
    {GRPC_HEALTH_CHECK, KEYS_HEALTH, RESTRICTED_HEALTH, .unary = grpc_answer_health},
    {GRPC_HEALTH_WATCH, KEYS_HEALTH, RESTRICTED_HEALTH, .on_event = grpc_step_health_watch,
     .streams = true},
    {GRPC_REFLECT_V1, KEYS_METADATA, RESTRICTED_CATEGORIES, .on_event = grpc_step_reflection,
     .streams = true},
    {GRPC_REFLECT_V1ALPHA, KEYS_METADATA, RESTRICTED_CATEGORIES, .on_event = grpc_step_reflection,
     .streams = true},
};

enum { N_METHODS = sizeof METHODS / sizeof METHODS[0] };

const struct grpc_method_entry *grpc_method_entries(size_t *n) {
    *n = N_METHODS;
    return METHODS;
}

enum status grpc_api_new(const struct grpc_api_options *options, struct grpc_api **out,
                         struct error *err) {
    struct grpc_api *api = calloc(1, sizeof *api);
    struct grpc_health_options health = {.state_of = grpc_api_health_state,
                                         .context = api,
                                         .names = "a model, or nothing for the server",
                                         .workers = options->workers,
                                         .n_workers = options->n_workers};
    if (api) {
        api->options = *options;
        api->methods = calloc(N_METHODS, sizeof *api->methods);
        api->contexts = calloc(N_METHODS, sizeof *api->contexts);
    }
    if (!api || !api->methods || !api->contexts ||
        grpc_health_new(&health, &api->health, err) != ST_OK) {
        grpc_api_free(api);
        return error_no_memory(err, "the gRPC front end");
    }
    for (size_t i = 0; i < N_METHODS; i++) {
        const struct grpc_method_entry *row = &METHODS[i];
        api->contexts[i] = (struct grpc_method_context){api, row};
        api->methods[i] =
            (struct grpc_method){.path = row->path,
                                 .on_event = row->on_event ? row->on_event : grpc_step_unary,
                                 .streams = row->streams,
                                 .small = !row->large,
                                 .align_at = row->align_at,
                                 .context = &api->contexts[i]};
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
    *n = N_METHODS;
    return api->methods;
}

void grpc_api_drain(struct grpc_api *api) {
    atomic_store_explicit(&api->draining, true, memory_order_relaxed);
    grpc_health_shutdown(api->health);
}

void grpc_api_notify_health_watchers(struct grpc_api *api) {
    grpc_health_notify(api->health);
}
