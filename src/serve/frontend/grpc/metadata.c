/* Metadata and readiness of the server and its models, their configuration and statistics. */
#include "codec/kserve/grpc/v2_grpc.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/extensions.h"
#include "serve/frontend/grpc/method.h"

#define SERVICE "/inference.GRPCInferenceService/"

static enum status answer_live(struct grpc_api *api, struct grpc_call *call, struct str message,
                               struct buf *out, struct error *err) {
    (void)call;
    v2_grpc_bool_encode(out, loop_health_is_live(api->options.services.loops));
    return v2_grpc_empty_decode(message, err);
}

static enum status answer_ready(struct grpc_api *api, struct grpc_call *call, struct str message,
                                struct buf *out, struct error *err) {
    (void)call;
    v2_grpc_bool_encode(out, grpc_api_is_ready(api));
    return v2_grpc_empty_decode(message, err);
}

static enum status answer_server(struct grpc_api *api, struct grpc_call *call, struct str message,
                                 struct buf *out, struct error *err) {
    (void)call;
    v2_grpc_server_metadata_encode(out, api->options.server_name, api->options.server_version,
                                   EXTENSIONS);
    return v2_grpc_empty_decode(message, err);
}

/* An unknown model is an error; a model that is still loading is not ready. */
static enum status answer_model_ready(struct grpc_api *api, struct grpc_call *call,
                                      struct str message, struct buf *out, struct error *err) {
    struct str name, text;
    struct model_version *version;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &text, err);
    if (st != ST_OK) {
        return st;
    }
    st = repository_find(api->options.services.repository, name,
                         text.len > 0 ? text : str_make(NULL, 0), &version, err);
    v2_grpc_bool_encode(out, st == ST_OK);
    if (st == ST_OK) {
        model_version_unref(version);
    }
    return st == ST_NOT_READY ? ST_OK : st;
}

typedef enum status encode_document(struct repository *repository, struct str model,
                                    struct str version, struct buf *out, struct error *err);

static enum status answer_document(struct grpc_api *api, struct grpc_call *call, struct str message,
                                   encode_document *encode, struct buf *out, struct error *err) {
    struct str name, version;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK ? encode(api->options.services.repository, name,
                                version.len > 0 ? version : str_make(NULL, 0), out, err)
                       : st;
}

static enum status answer_model(struct grpc_api *api, struct grpc_call *call, struct str message,
                                struct buf *out, struct error *err) {
    return answer_document(api, call, message, document_encode_metadata, out, err);
}

static enum status answer_config(struct grpc_api *api, struct grpc_call *call, struct str message,
                                 struct buf *out, struct error *err) {
    return answer_document(api, call, message, document_encode_config, out, err);
}

static enum status answer_statistics(struct grpc_api *api, struct grpc_call *call,
                                     struct str message, struct buf *out, struct error *err) {
    return answer_document(api, call, message, document_encode_statistics, out, err);
}

/* Returns: whether the message names no model, and there are many. */
static bool wants_page(struct grpc_call *call) {
    const struct inference_services *services =
        &grpc_method_context_of(call)->api->options.services;
    return call->message->data.len == 0 &&
           shared_page_is_large(services->pages, services->repository, STATISTICS_MESSAGE_BYTES);
}

static void step_statistics(struct grpc_call *call, enum grpc_event event) {
    if (event == GRPC_MESSAGE && wants_page(call)) {
        grpc_message_free(call->message);
        grpc_page_send(call, PAGE_GRPC_STATISTICS);
    } else if (event == GRPC_CANCELLED) {
        grpc_waiting_cancel(call);
    } else {
        grpc_step_unary(call, event);
    }
}

const struct grpc_method_entry *grpc_metadata_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = SERVICE "ServerLive", .group = KEYS_HEALTH, .unary = answer_live},
        {.path = SERVICE "ServerReady", .group = KEYS_HEALTH, .unary = answer_ready},
        {.path = SERVICE "ServerMetadata", .group = KEYS_METADATA, .unary = answer_server},
        {.path = SERVICE "ModelReady", .group = KEYS_HEALTH, .unary = answer_model_ready},
        {.path = SERVICE "ModelMetadata", .group = KEYS_METADATA, .unary = answer_model},
        {.path = SERVICE "ModelConfig", .group = KEYS_METADATA, .unary = answer_config},
        {.path = SERVICE "ModelStatistics",
         .group = KEYS_METADATA,
         .unary = answer_statistics,
         .on_event = step_statistics},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
