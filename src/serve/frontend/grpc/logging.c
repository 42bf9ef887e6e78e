/* The logging extension over gRPC: LogSettings changes the settings and returns the new ones. */
#include "serve/frontend/grpc/method.h"
#include "serve/frontend/log_settings.h"

static enum status answer_log_settings(struct grpc_api *api, struct grpc_call *call,
                                       struct str message, struct buf *out, struct error *err) {
    struct v2_log_settings wanted;
    enum status st = v2_grpc_log_decode(message, &wanted, err);
    (void)api, (void)call;
    log_settings_apply(&wanted); /* settings before the invalid one are applied */
    if (st == ST_OK) {
        struct v2_log_settings now = log_settings_get();
        v2_grpc_log_encode(out, &now);
    }
    return st;
}

const struct grpc_method_entry *grpc_logging_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = "/inference.GRPCInferenceService/LogSettings",
         .group = KEYS_CONTROL,
         .unary = answer_log_settings},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
