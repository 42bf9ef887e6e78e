/* Spans in the forms that OpenTelemetry collectors receive: an ExportTraceServiceRequest, in
 * protobuf or as OTLP's JSON. */
#ifndef SLUICE_CODEC_TRACE_OTLP_SPAN_H
#define SLUICE_CODEC_TRACE_OTLP_SPAN_H

#include "codec/trace/traceparent.h"
#include "core/base/arena.h"
#include "core/base/buf.h"

enum otlp_format { OTLP_JSON, OTLP_PROTOBUF };

/* The numbers are the protocol's. */
enum otlp_span_kind { OTLP_SPAN_INTERNAL = 1, OTLP_SPAN_SERVER = 2, OTLP_SPAN_CLIENT = 3 };

enum otlp_value_kind { OTLP_TEXT, OTLP_INTEGER, OTLP_NUMBER, OTLP_TEXTS, OTLP_NUMBERS };

/* An attribute; texts that are not UTF-8 are sent as empty ones. */
struct otlp_attribute {
    struct str key;
    struct str text;
    enum otlp_value_kind kind;
    int64_t integer;
    double number;
    const struct str *texts; /* `n` of them */
    const double *numbers;   /* likewise */
    size_t n;
};

struct otlp_event {
    uint64_t ns;
    struct str name;
};

/* Times are of the monotonic clock. */
struct otlp_span {
    unsigned char trace[TRACE_ID_BYTES];
    unsigned char id[SPAN_ID_BYTES];
    unsigned char parent[SPAN_ID_BYTES];
    bool has_parent;
    bool failed;
    enum otlp_span_kind kind;
    struct str state; /* tracestate; empty: none */
    struct str name;
    struct str failure; /* with `failed`: why; empty: unknown */
    uint64_t start_ns, end_ns;
    const struct otlp_attribute *attributes;
    size_t n_attributes;
    const struct otlp_event *events;
    size_t n_events;
};

/* A request being written: begin, add for each span, end. `out->failed` shows that memory was
 * short. Clause: OTLP, Binary Protobuf Encoding and JSON Protobuf Encoding. */
struct otlp_request {
    struct buf *out;
    enum otlp_format format;
    size_t resource_at, scope_at; /* OTLP_PROTOBUF: for pb_end */
    size_t n_spans;
};

void otlp_request_begin(struct otlp_request *request, struct buf *out, enum otlp_format format,
                        const struct otlp_attribute *resource, size_t n, struct str version);
/* `unix_ns` is added to each time: the Unix time at 0 of the monotonic clock. */
void otlp_request_add(struct otlp_request *request, const struct otlp_span *span, uint64_t unix_ns);
void otlp_request_end(struct otlp_request *request);

/* Parses a collector's response. Returns: the number of spans that it rejected, 0 when the response
 * contains none; *why is its reason, if it gives one, in `arena` or a view of the response. Clause:
 * OTLP, partial success. */
uint64_t otlp_rejected_spans(struct arena *arena, enum otlp_format format, struct str answer,
                             struct str *why);

#endif
