/* The trace extension over gRPC: TraceSetting changes what it is asked to and says what is. */
#include "serve/frontend/grpc/method.h"
#include "serve/trace/model.h"
#include "serve/trace/tracer.h"

static enum status answer(struct grpc_api *api, struct grpc_call *call, struct str message,
                          struct buf *out, struct error *err) {
    struct tracer *tracer = api->options.tracer;
    struct v2_trace_wanted wanted;
    enum status st = v2_grpc_trace_decode(message, &wanted, err);
    (void)call;
    if (st == ST_OK) {
        st = trace_model_check(api->options.repository, wanted.model, err);
    }
    if (st == ST_OK) {
        st = tracer_change(tracer, wanted.model, &wanted, err);
    }
    if (st == ST_OK) {
        struct v2_trace_shown now = tracer_shown(tracer, wanted.model);
        v2_grpc_trace_print(out, &now);
    }
    return st;
}

const struct grpc_row *grpc_trace_rows(size_t *n) {
    static const struct grpc_row rows[] = {
        {.path = "/inference.GRPCInferenceService/TraceSetting",
         .group = KEYS_CONTROL,
         .answer = answer},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
