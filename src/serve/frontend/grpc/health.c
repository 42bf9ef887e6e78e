/* grpc.health.v1.Health: the state of the server, of its inference service, and of each model by
 * its name. net/server/grpc/health.h implements the protocol. */
#include "serve/frontend/grpc/method.h"

static bool is_server(struct str service) {
    return service.len == 0 || str_is(service, "inference.GRPCInferenceService");
}

enum grpc_health_state grpc_api_health_state(void *context, struct str service) {
    struct grpc_api *api = context;
    if (is_server(service)) {
        return grpc_api_is_ready(api) ? GRPC_HEALTH_SERVING : GRPC_HEALTH_NOT_SERVING;
    }
    struct model_version *version;
    enum status st = repository_find(api->options.services.repository, service, str_make(NULL, 0),
                                     &version, NULL);
    if (st == ST_OK) {
        model_version_unref(version);
        bool draining = atomic_load_explicit(&api->draining, memory_order_relaxed);
        return draining ? GRPC_HEALTH_NOT_SERVING : GRPC_HEALTH_SERVING;
    }
    return st == ST_NOT_READY ? GRPC_HEALTH_NOT_SERVING : GRPC_HEALTH_SERVICE_UNKNOWN;
}

static enum status answer_check(struct grpc_api *api, struct grpc_call *call, struct str message,
                                struct buf *out, struct error *err) {
    (void)call;
    return grpc_health_check(api->health, message, out, err);
}

static void step_watch(struct grpc_call *call, enum grpc_event event) {
    grpc_health_watch(grpc_method_context_of(call)->api->health, call, event);
}

const struct grpc_method_entry *grpc_health_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = GRPC_HEALTH_CHECK, .group = KEYS_HEALTH, .unary = answer_check},
        {.path = GRPC_HEALTH_WATCH, .group = KEYS_HEALTH, .on_event = step_watch, .streams = true},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
