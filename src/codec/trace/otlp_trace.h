/* A trace of the model server as spans: one of the whole request, which contains one of its time in
 * the model, which contains one of its execution. An inference that ran inside of another one, as a
 * step of an ensemble does, has no span of a request: that of its model is within that of the
 * model which it ran for. */
#ifndef SLUICE_CODEC_TRACE_OTLP_TRACE_H
#define SLUICE_CODEC_TRACE_OTLP_TRACE_H

#include "codec/trace/otlp_span.h"
#include "codec/trace/trace_record.h"

enum { OTLP_SPANS = 3, OTLP_TRACE_ATTRIBUTES = 5 }; /* at most, per trace */

enum { OTLP_REQUEST_SPAN, OTLP_MODEL_SPAN, OTLP_COMPUTE_SPAN };

/* The ids of a trace and its position in the caller's. */
struct otlp_ids {
    unsigned char trace[TRACE_ID_BYTES];
    unsigned char spans[OTLP_SPANS][SPAN_ID_BYTES];
    bool has_parent; /* the first span has `parent` */
    unsigned char parent[SPAN_ID_BYTES];
    struct str state; /* tracestate; empty: none */
};

struct otlp_trace {
    struct otlp_span spans[OTLP_SPANS];
    size_t n_spans;
    struct otlp_attribute attributes[OTLP_TRACE_ATTRIBUTES];
    struct otlp_event events[TRACE_TIMESTAMPS];
};

/* Fills in the spans, which are views of `out` and of the record. Clause: names of spans and
 * attributes are the reference server's. */
void otlp_trace_fill(const struct trace_record *record, const struct otlp_ids *ids,
                     struct otlp_trace *out);

#endif
