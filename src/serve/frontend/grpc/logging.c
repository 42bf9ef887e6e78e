/* The logging extension over gRPC: LogSettings changes what it is asked to and says what is. */
#include "serve/frontend/grpc/method.h"
#include "serve/frontend/log_settings.h"

static enum status answer(struct grpc_api *api, struct grpc_call *call, struct str message,
                          struct buf *out, struct error *err) {
    struct v2_log_settings wanted;
    enum status st = v2_grpc_log_decode(message, &wanted, err);
    (void)api, (void)call;
    log_settings_apply(&wanted); /* what stands before the key that is wrong stays */
    if (st == ST_OK) {
        struct v2_log_settings now = log_settings_now();
        v2_grpc_log_print(out, &now);
    }
    return st;
}

const struct grpc_row *grpc_logging_rows(size_t *n) {
    static const struct grpc_row rows[] = {
        {.path = "/inference.GRPCInferenceService/LogSettings",
         .group = KEYS_CONTROL,
         .answer = answer},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
