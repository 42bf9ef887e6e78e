/* Names of spans and attributes are the reference server's. */
#include "codec/trace/otlp_trace.h"

/* One of the spans, and the timestamps that are events of it. */
static const struct layer {
    enum trace_timestamp start, end; /* a trace without both has no such span */
    unsigned long long events;       /* a bit for each trace_timestamp */
} LAYERS[OTLP_SPANS] = {
    {TRACE_TIMESTAMPS, TRACE_TIMESTAMPS, /* from the first to the last timestamp */
     1U << TRACE_HTTP_RECV_START | 1U << TRACE_HTTP_RECV_END | 1U << TRACE_GRPC_WAITREAD_START |
         1U << TRACE_GRPC_WAITREAD_END | 1U << TRACE_INFER_RESPONSE_COMPLETE |
         1U << TRACE_HTTP_SEND_START | 1U << TRACE_HTTP_SEND_END | 1U << TRACE_GRPC_SEND_START |
         1U << TRACE_GRPC_SEND_END},
    {TRACE_REQUEST_START, TRACE_REQUEST_END,
     1U << TRACE_REQUEST_START | 1U << TRACE_QUEUE_START | 1U << TRACE_REQUEST_END},
    {TRACE_COMPUTE_START, TRACE_COMPUTE_END,
     1U << TRACE_COMPUTE_START | 1U << TRACE_COMPUTE_INPUT_END | 1U << TRACE_COMPUTE_OUTPUT_START |
         1U << TRACE_COMPUTE_END},
};

/* The first and the last timestamp. Returns: false when there is none. */
static bool request_times(const struct trace_record *record, uint64_t *start, uint64_t *end) {
    *start = UINT64_MAX;
    *end = 0;
    for (size_t i = 0; i < TRACE_TIMESTAMPS; i++) {
        uint64_t ns = record->ns[i];
        if (ns > 0) {
            *start = ns < *start ? ns : *start;
            *end = ns > *end ? ns : *end;
        }
    }
    return *end > 0;
}

static bool span_times(const struct trace_record *record, size_t i, bool is_first, uint64_t *start,
                       uint64_t *end) {
    if (is_first) {
        return request_times(record, start, end);
    }
    *start = record->ns[LAYERS[i].start];
    *end = record->ns[LAYERS[i].end];
    return *start > 0 && *end > 0;
}

/* Returns: their number. */
static size_t fill_attributes(const struct trace_record *record, struct otlp_attribute *out) {
    size_t n = 0;
    out[n++] = (struct otlp_attribute){.key = STR("triton.model_name"), .text = record->model};
    out[n++] = (struct otlp_attribute){.key = STR("triton.model_version"),
                                       .kind = OTLP_INTEGER,
                                       .integer = (int64_t)record->version};
    out[n++] = (struct otlp_attribute){
        .key = STR("triton.trace_id"), .kind = OTLP_INTEGER, .integer = (int64_t)record->id};
    out[n++] = (struct otlp_attribute){.key = STR("triton.trace_parent_id"),
                                       .kind = OTLP_INTEGER,
                                       .integer = (int64_t)record->parent_id};
    if (record->request_id.len > 0) {
        out[n++] =
            (struct otlp_attribute){.key = STR("triton.request_id"), .text = record->request_id};
    }
    return n;
}

/* The timestamps that are events of the layer. Returns: their number. */
static size_t fill_events(const struct trace_record *record, const struct layer *layer,
                          struct otlp_event *out) {
    size_t n = 0;
    for (unsigned i = 0; i < TRACE_TIMESTAMPS; i++) {
        if (record->ns[i] > 0 && (layer->events >> i & 1)) {
            out[n++] = (struct otlp_event){record->ns[i],
                                           str_of(trace_timestamp_name((enum trace_timestamp)i))};
        }
    }
    return n;
}

void otlp_trace_fill(const struct trace_record *record, const struct otlp_ids *ids,
                     struct otlp_trace *out) {
    const struct str names[OTLP_SPANS] = {STR("InferRequest"), record->model, STR("compute")};
    const unsigned char *parent = ids->has_parent ? ids->parent : NULL;
    size_t first = record->parent_id > 0 ? OTLP_MODEL_SPAN : OTLP_REQUEST_SPAN;
    size_t n_attributes = fill_attributes(record, out->attributes), n_events = 0;
    uint64_t start, end;
    out->n_spans = 0;
    for (size_t i = first; i < OTLP_SPANS && span_times(record, i, i == first, &start, &end); i++) {
        struct otlp_span *span = &out->spans[out->n_spans++];
        *span = (struct otlp_span){.kind = OTLP_SPAN_SERVER,
                                   .state = ids->state,
                                   .name = names[i],
                                   .start_ns = start,
                                   .end_ns = end,
                                   .attributes = out->attributes,
                                   .n_attributes = i == OTLP_COMPUTE_SPAN ? 0 : n_attributes,
                                   .events = out->events + n_events,
                                   .has_parent = parent != NULL};
        span->n_events = fill_events(record, &LAYERS[i], out->events + n_events);
        n_events += span->n_events;
        memcpy(span->trace, ids->trace, TRACE_ID_BYTES);
        memcpy(span->id, ids->spans[i], SPAN_ID_BYTES);
        if (parent) {
            memcpy(span->parent, parent, SPAN_ID_BYTES);
        }
        if (i == first && record->ns[TRACE_INFER_RESPONSE_COMPLETE] == 0) {
            span->failed = true;
            span->failure = record->failure;
        }
        parent = ids->spans[i];
    }
}
