/* Traces in the form that OpenTelemetry collectors receive over HTTP: an ExportTraceServiceRequest
 * in JSON. Each trace is a span of the whole request, which contains a span of its time in the
 * model, which contains one of its execution. */
#ifndef SLUICE_CODEC_TRACE_OTLP_TRACE_H
#define SLUICE_CODEC_TRACE_OTLP_TRACE_H

#include "codec/trace/trace_record.h"
#include "codec/trace/traceparent.h"

enum { OTLP_SPANS = 3 }; /* at most, per trace */

struct otlp_attribute {
    struct str key, value;
};

/* The ids of a trace and its position in the caller's. */
struct otlp_ids {
    unsigned char trace[TRACE_ID_BYTES];
    unsigned char spans[OTLP_SPANS][SPAN_ID_BYTES];
    const unsigned char *parent; /* the parent of the first span; NULL: none */
    struct str state;            /* tracestate; empty: none */
};

/* A request consists of the output of begin, add (once for each trace) and end. Attributes are
 * UTF-8. Clause: OTLP, JSON Protobuf Encoding. */
void otlp_trace_begin(struct buf *out, const struct otlp_attribute *resource, size_t n,
                      struct str version);
/* `first`: no trace was added before. `unix_ns` converts the record's monotonic clock to Unix time:
 * it is added to each timestamp. Returns: the number of spans. */
size_t otlp_trace_add(struct buf *out, const struct trace_record *record,
                      const struct otlp_ids *ids, uint64_t unix_ns, bool first);
void otlp_trace_end(struct buf *out);

/* Parses a collector's response. Returns: the number of spans that it rejected, 0 when the response
 * contains none; *why is its reason, in `arena`, if it gives one. Clause: OTLP, partial success. */
uint64_t otlp_trace_rejected_spans(struct arena *arena, struct str answer, struct str *why);

#endif
