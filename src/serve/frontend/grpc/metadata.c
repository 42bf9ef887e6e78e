/* Metadata and readiness of the server and its models. */
#include "codec/kserve/grpc/v2_grpc.h"
#include "serve/frontend/extensions.h"
#include "serve/frontend/grpc/method.h"

#define SERVICE "/inference.GRPCInferenceService/"

static enum status find_version(struct grpc_api *api, struct grpc_call *call, struct str message,
                                bool *named, struct model_version **version, struct error *err) {
    struct str name, version_text;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version_text, err);
    if (st != ST_OK) {
        return st;
    }
    *named = version_text.len > 0;
    return repository_find(api->options.services.repository, name,
                           *named ? version_text : str_make(NULL, 0), version, err);
}

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
    struct model_version *version;
    bool named;
    enum status st = find_version(api, call, message, &named, &version, err);
    v2_grpc_bool_encode(out, st == ST_OK);
    if (st == ST_OK) {
        model_version_unref(version);
    }
    return st == ST_NOT_READY ? ST_OK : st;
}

static enum status answer_model(struct grpc_api *api, struct grpc_call *call, struct str message,
                                struct buf *out, struct error *err) {
    struct model_version *version;
    bool named;
    enum status st = find_version(api, call, message, &named, &version, err);
    if (st != ST_OK) {
        return st;
    }
    const struct model_spec *spec = model_version_spec(version);
    size_t n = 1;
    const uint64_t *versions = &spec->version;
    if (!named) {
        versions = model_version_siblings(version, &n);
    }
    v2_grpc_model_metadata_encode(out, spec, versions, n);
    model_version_unref(version);
    return ST_OK;
}

static enum status answer_config(struct grpc_api *api, struct grpc_call *call, struct str message,
                                 struct buf *out, struct error *err) {
    struct model_version *version;
    bool named;
    enum status st = find_version(api, call, message, &named, &version, err);
    if (st == ST_OK) {
        grpc_config_encode(out, model_version_config(version));
        model_version_unref(version);
    }
    return st;
}

const struct grpc_method_entry *grpc_metadata_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = SERVICE "ServerLive", .group = KEYS_HEALTH, .unary = answer_live},
        {.path = SERVICE "ServerReady", .group = KEYS_HEALTH, .unary = answer_ready},
        {.path = SERVICE "ServerMetadata", .group = KEYS_METADATA, .unary = answer_server},
        {.path = SERVICE "ModelReady", .group = KEYS_HEALTH, .unary = answer_model_ready},
        {.path = SERVICE "ModelMetadata", .group = KEYS_METADATA, .unary = answer_model},
        {.path = SERVICE "ModelConfig", .group = KEYS_METADATA, .unary = answer_config},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
