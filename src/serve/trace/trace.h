/* The trace of one request, from the decision that it is traced until it is handed to the writer.
 * Everything takes NULL, a request that is not traced, and does nothing then.
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

/* What a request says of a trace that it is a part of: traceparent and tracestate. */
struct trace_context {
    size_t n_parents; /* more than one is none */
    struct str parent, state;
};

/* A request of this model begins. Returns: NULL, unless it is to be traced. Owns: who calls, until
 * trace_end. */
struct trace *trace_sample(struct tracer *tracer, const struct model_spec *spec,
                           const struct trace_context *caller);
struct trace *trace_sample_http(struct tracer *tracer, const struct model_spec *spec,
                                const struct http_head *head);
struct trace *trace_sample_grpc(struct tracer *tracer, const struct model_spec *spec,
                                const struct grpc_call *call);
/* Where nobody can say what it is a part of. */
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

/* It is now. */
void trace_timestamp_record(struct trace *trace, enum trace_timestamp mark);
static inline void trace_timestamp_set(struct trace *trace, enum trace_timestamp mark) {
    if (trace) {
        trace_timestamp_record(trace, mark);
    }
}
/* What the model is about to be asked. */
void trace_add_request_copy(struct trace *trace, const struct infer_request *request);
static inline void trace_add_request(struct trace *trace, const struct infer_request *request) {
    if (trace) {
        trace_add_request_copy(trace, request);
    }
}
/* One of the answers of a model that gives several, but for the last. */
void trace_add_partial_response_copy(struct trace *trace, const struct infer_response *response);
static inline void trace_add_partial_response(struct trace *trace,
                                              const struct infer_response *response) {
    if (trace) {
        trace_add_partial_response_copy(trace, response);
    }
}
/* The call has come back. */
void trace_add_response_copy(struct trace *trace, const struct call *call);
static inline void trace_add_response(struct trace *trace, const struct call *call) {
    if (trace) {
        trace_add_response_copy(trace, call);
    }
}
/* The request is over; `*trace` is NULL afterwards. */
void trace_submit(struct trace *trace);
static inline void trace_end(struct trace **trace) {
    if (*trace) {
        trace_submit(*trace);
        *trace = NULL;
    }
}

#endif
