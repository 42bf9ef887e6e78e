/* The trace extension over gRPC: TraceSetting changes the settings and returns the new ones. */
#include "serve/frontend/grpc/method.h"
#include "serve/trace/tracer.h"

static enum status answer_trace_setting(struct grpc_api *api, struct grpc_call *call,
                                        struct str message, struct buf *out, struct error *err) {
    struct tracer *tracer = api->options.services.tracer;
    struct v2_trace_update wanted;
    enum status st = v2_grpc_trace_decode(message, &wanted, err);
    (void)call;
    if (st == ST_OK) {
        st = trace_model_check(api->options.services.repository, wanted.model, err);
    }
    if (st == ST_OK) {
        st = tracer_change_settings(tracer, wanted.model, &wanted, err);
    }
    if (st == ST_OK) {
        struct v2_trace_settings now = tracer_get_settings(tracer, wanted.model);
        v2_grpc_trace_encode(out, &now);
    }
    return st;
}

const struct grpc_method_entry *grpc_trace_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = "/inference.GRPCInferenceService/TraceSetting",
         .group = KEYS_CONTROL,
         .unary = answer_trace_setting},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
