/* Traces as OpenTelemetry's collectors take them over HTTP: an ExportTraceServiceRequest in JSON.
 * Each trace is a span of the whole request, with one of its way through the model within, and one
 * of its execution within that. */
#ifndef SLUICE_CODEC_TRACE_OTLP_TRACE_H
#define SLUICE_CODEC_TRACE_OTLP_TRACE_H

#include "codec/trace/trace_record.h"
#include "codec/trace/traceparent.h"

enum { OTLP_SPANS = 3 }; /* at most, of a trace */

struct otlp_attribute {
    struct str key, value;
};

/* Who a trace is and where it hangs. */
struct otlp_ids {
    unsigned char trace[TRACE_ID_BYTES];
    unsigned char spans[OTLP_SPANS][SPAN_ID_BYTES];
    const unsigned char *parent; /* of the first; NULL: none */
    struct str state;            /* tracestate; empty: none */
};

/* A request is what begin, add (once for each trace) and end append. Attributes are UTF-8.
 * Clause: OTLP, JSON Protobuf Encoding. */
void otlp_trace_begin(struct buf *out, const struct otlp_attribute *resource, size_t n,
                      struct str version);
/* `first`: none was added before. `unix_ns` is 1970 on the record's clock, negated: what makes its
 * times those of the calendar. Returns: how many spans it were. */
size_t otlp_trace_add(struct buf *out, const struct trace_record *record,
                      const struct otlp_ids *ids, uint64_t unix_ns, bool first);
void otlp_trace_end(struct buf *out);

/* What a collector says that it took a request with. Returns: how many spans it refused; *why says
 * why, in `arena`, if it does. An answer that says nothing of the kind has refused none.
 * Clause: OTLP, partial success. */
uint64_t otlp_trace_rejected_spans(struct arena *arena, struct str answer, struct str *why);

#endif
