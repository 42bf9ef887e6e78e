/* Health of the server and its models, what the server tells about itself and them, and server
 * reflection. */
#include "net/server/grpc/reflect.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/grpc/methods.h"

enum status grpc_answer_live(struct grpc_api *api, struct grpc_call *call, struct str message,
                             struct buf *out, struct error *err) {
    (void)call;
    v2_grpc_bool_encode(out, loop_health_is_live(api->options.services.loops));
    return v2_grpc_empty_decode(message, err);
}

enum status grpc_answer_ready(struct grpc_api *api, struct grpc_call *call, struct str message,
                              struct buf *out, struct error *err) {
    (void)call;
    v2_grpc_bool_encode(out, grpc_api_is_ready(api));
    return v2_grpc_empty_decode(message, err);
}

enum status grpc_answer_server(struct grpc_api *api, struct grpc_call *call, struct str message,
                               struct buf *out, struct error *err) {
    (void)call;
    document_encode_server(api->options.server_name, api->options.server_version, out);
    return v2_grpc_empty_decode(message, err);
}

/* An unknown model or version is not ready, as one that is still loading: the reference server has
 * no error for it. */
enum status grpc_answer_model_ready(struct grpc_api *api, struct grpc_call *call,
                                    struct str message, struct buf *out, struct error *err) {
    struct str name, text;
    struct model_version *version;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &text, err);
    if (st != ST_OK) {
        return st;
    }
    st = repository_find(api->options.services.repository, name,
                         text.len > 0 ? text : str_make(NULL, 0), &version, err);
    v2_grpc_bool_encode(out, st == ST_OK && model_version_is_ready(version));
    if (st == ST_OK) {
        model_version_unref(version);
    }
    bool unready = st == ST_NOT_READY || st == ST_UNKNOWN_MODEL || st == ST_UNKNOWN_VERSION;
    return unready ? ST_OK : st;
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

enum status grpc_answer_model(struct grpc_api *api, struct grpc_call *call, struct str message,
                              struct buf *out, struct error *err) {
    return answer_document(api, call, message, document_encode_metadata, out, err);
}

enum status grpc_answer_config(struct grpc_api *api, struct grpc_call *call, struct str message,
                               struct buf *out, struct error *err) {
    return answer_document(api, call, message, document_encode_config, out, err);
}

enum status grpc_answer_statistics(struct grpc_api *api, struct grpc_call *call, struct str message,
                                   struct buf *out, struct error *err) {
    return answer_document(api, call, message, document_encode_statistics, out, err);
}

void grpc_step_statistics(struct grpc_call *call, enum grpc_event event) {
    const struct inference_services *services =
        &grpc_method_context_of(call)->api->options.services;
    if (event == GRPC_MESSAGE && call->message->data.len == 0 && /* names no model */
        shared_page_is_large(services->pages, services->repository, STATISTICS_MESSAGE_BYTES)) {
        grpc_message_free(call->message);
        grpc_page_send(call, PAGE_GRPC_STATISTICS);
    } else if (event == GRPC_CANCELLED) {
        grpc_waiting_cancel(call);
    } else {
        grpc_step_unary(call, event);
    }
}

/* ---- grpc.health.v1.Health ------------------------------------------------------------------- */

/* The state of the server, of its inference service, and of each model by its name.
 * net/server/grpc/health.h implements the protocol. */

enum grpc_health_state grpc_api_health_state(void *context, struct str service) {
    struct grpc_api *api = context;
    if (service.len == 0 || str_is(service, "inference.GRPCInferenceService")) {
        return grpc_api_is_ready(api) ? GRPC_HEALTH_SERVING : GRPC_HEALTH_NOT_SERVING;
    }
    struct model_version *version;
    enum status st = repository_find(api->options.services.repository, service, str_make(NULL, 0),
                                     &version, NULL);
    if (st == ST_OK) {
        bool unready = atomic_load_explicit(&api->draining, memory_order_relaxed) ||
                       !model_version_is_ready(version);
        model_version_unref(version);
        return unready ? GRPC_HEALTH_NOT_SERVING : GRPC_HEALTH_SERVING;
    }
    return st == ST_NOT_READY ? GRPC_HEALTH_NOT_SERVING : GRPC_HEALTH_SERVICE_UNKNOWN;
}

enum status grpc_answer_health(struct grpc_api *api, struct grpc_call *call, struct str message,
                               struct buf *out, struct error *err) {
    (void)call;
    return grpc_health_check(api->health, message, out, err);
}

void grpc_step_health_watch(struct grpc_call *call, enum grpc_event event) {
    grpc_health_watch(grpc_method_context_of(call)->api->health, call, event);
}

/* ---- reflection ------------------------------------------------------------------------------ */

/* v1 and v1alpha. net/server/grpc/reflect.h implements the protocol. */
void grpc_step_reflection(struct grpc_call *call, enum grpc_event event) {
    grpc_reflect(serve_descriptors(), call, event);
}
