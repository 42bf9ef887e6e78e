/* The trace of one request, from the sampling decision until it is handed to the writer. Every
 * function takes NULL, which is a request that is not traced, and does nothing.
 *
 * Thread: the request's worker. */
#ifndef SLUICE_SERVE_TRACE_TRACE_H
#define SLUICE_SERVE_TRACE_TRACE_H

#include "codec/trace/trace_record.h"
#include "net/server/grpc/server.h"
#include "net/server/http/server.h"
#include "serve/scheduler/call.h"
#include "serve/trace/tracer.h"

struct trace;

/* The trace context of a request: the fields traceparent and tracestate. */
struct trace_context {
    size_t n_parents; /* of traceparent fields; only exactly 1 counts */
    struct str parent, state;
};

/* Decides whether a request of the model is traced. Returns: NULL when it is not. Owns: the caller,
 * until trace_end. */
struct trace *trace_sample(struct tracer *tracer, const struct model_spec *spec,
                           const struct trace_context *context);
struct trace *trace_sample_http(struct tracer *tracer, const struct model_spec *spec,
                                const struct http_head *head);
struct trace *trace_sample_grpc(struct tracer *tracer, const struct model_spec *spec,
                                const struct grpc_call *call);
/* Traces an inference that runs inside of the traced one, with its settings and its client's trace
 * context; it is not counted by the sampling. `parent` is not NULL. Returns: NULL when out of
 * memory. Owns: as trace_sample. */
struct trace *trace_sample_inside(struct trace *parent, const struct model_spec *spec);
/* For protocols without a trace context (MIP). */
static inline struct trace *trace_begin(struct tracer *tracer, const struct model_spec *spec) {
    static const struct trace_context no_parent = {.n_parents = 0};
    return tracer_is_on(tracer) ? trace_sample(tracer, spec, &no_parent) : NULL;
}
static inline struct trace *trace_begin_http(struct tracer *tracer, const struct model_spec *spec,
                                             const struct http_head *head) {
    return tracer_is_on(tracer) ? trace_sample_http(tracer, spec, head) : NULL;
}
static inline struct trace *trace_begin_grpc(struct tracer *tracer, const struct model_spec *spec,
                                             const struct grpc_call *call) {
    return tracer_is_on(tracer) ? trace_sample_grpc(tracer, spec, call) : NULL;
}

/* Records the current time for `mark`. */
void trace_timestamp_record(struct trace *trace, enum trace_timestamp mark);
static inline void trace_timestamp_set(struct trace *trace, enum trace_timestamp mark) {
    if (trace) {
        trace_timestamp_record(trace, mark);
    }
}
/* Records the request that is passed to the model: its id, and its inputs at level TENSORS. */
void trace_add_request_copy(struct trace *trace, const struct infer_request *request);
static inline void trace_add_request(struct trace *trace, const struct infer_request *request) {
    if (trace) {
        trace_add_request_copy(trace, request);
    }
}
/* Records one response of a decoupled model, except the last. */
void trace_add_partial_response_copy(struct trace *trace, const struct infer_response *response);
static inline void trace_add_partial_response(struct trace *trace,
                                              const struct infer_response *response) {
    if (trace) {
        trace_add_partial_response_copy(trace, response);
    }
}
/* Records the result of the call: times, error, and outputs at level TENSORS. */
void trace_add_response_copy(struct trace *trace, const struct call *call);
static inline void trace_add_response(struct trace *trace, const struct call *call) {
    if (trace) {
        trace_add_response_copy(trace, call);
    }
}
/* Ends the trace: hands it to the writer. `*trace` becomes NULL. */
void trace_submit(struct trace *trace);
static inline void trace_end(struct trace **trace) {
    if (*trace) {
        trace_submit(*trace);
        *trace = NULL;
    }
}

#endif
