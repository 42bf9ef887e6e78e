/* OTLP in JSON: ids are hexadecimal, 64-bit numbers are strings, enums are numbers. Names of spans
 * and attributes are the reference server's. */
#include "codec/trace/otlp_trace.h"

#include "codec/json/tree.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

enum { KIND_SERVER = 2, STATUS_ERROR = 2 };

/* One of the spans, and the timestamps that are events of it. */
static const struct layer {
    enum trace_timestamp start, end; /* a trace without both has no such span */
    unsigned long long events;       /* a bit for each trace_timestamp */
} LAYERS[OTLP_SPANS] = {
    {TRACE_TIMESTAMPS, TRACE_TIMESTAMPS, /* from the first to the last timestamp */
     1U << TRACE_HTTP_RECV_START | 1U << TRACE_HTTP_RECV_END | 1U << TRACE_GRPC_WAITREAD_START |
         1U << TRACE_GRPC_WAITREAD_END | 1U << TRACE_HTTP_SEND_START | 1U << TRACE_HTTP_SEND_END |
         1U << TRACE_GRPC_SEND_START | 1U << TRACE_GRPC_SEND_END},
    {TRACE_REQUEST_START, TRACE_REQUEST_END,
     1U << TRACE_REQUEST_START | 1U << TRACE_QUEUE_START | 1U << TRACE_INFER_RESPONSE_COMPLETE |
         1U << TRACE_REQUEST_END},
    {TRACE_COMPUTE_START, TRACE_COMPUTE_END,
     1U << TRACE_COMPUTE_START | 1U << TRACE_COMPUTE_INPUT_END | 1U << TRACE_COMPUTE_OUTPUT_START |
         1U << TRACE_COMPUTE_END},
};

static void add_hex(struct json_writer *json, const char *name, const unsigned char *id, size_t n) {
    static const char digits[] = "0123456789abcdef";
    char text[2 * TRACE_ID_BYTES];
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digits[id[i] >> 4];
        text[2 * i + 1] = digits[id[i] & 15];
    }
    json_write_string(json, name, str_make(text, 2 * n));
}

static void open_attribute(struct json_writer *json, struct str key) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "key", key);
    json_write_open(json, "value", '{');
}

static void close_attribute(struct json_writer *json) {
    json_write_close(json, '}');
    json_write_close(json, '}');
}

static void text_attribute(struct json_writer *json, struct str key, struct str value) {
    open_attribute(json, key);
    json_write_string(json, "stringValue", utf8_is_valid(value.ptr, value.len) ? value : STR(""));
    close_attribute(json);
}

static void number_attribute(struct json_writer *json, struct str key, uint64_t value) {
    open_attribute(json, key);
    json_write_u64_string(json, "intValue", value);
    close_attribute(json);
}

void otlp_trace_begin(struct buf *out, const struct otlp_attribute *resource, size_t n,
                      struct str version) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "resourceSpans", '[');
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "resource", '{');
    json_write_open(&json, "attributes", '[');
    for (size_t i = 0; i < n; i++) {
        text_attribute(&json, resource[i].key, resource[i].value);
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    json_write_open(&json, "scopeSpans", '[');
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "scope", '{');
    json_write_string(&json, "name", STR("sluice"));
    json_write_string(&json, "version", version);
    json_write_close(&json, '}');
    json_write_open(&json, "spans", '[');
}

void otlp_trace_end(struct buf *out) {
    static const char open[] = {']', '}', ']', '}', ']', '}'}; /* since otlp_trace_begin */
    struct json_writer json = {.out = out, .depth = sizeof(open)};
    for (size_t i = 0; i < sizeof(open); i++) {
        json_write_close(&json, open[i]);
    }
}

/* ---- spans ----------------------------------------------------------------------------------- */

static void add_events(struct json_writer *json, const struct trace_record *record,
                       const struct layer *layer, uint64_t unix_ns) {
    json_write_open(json, "events", '[');
    for (unsigned i = 0; i < TRACE_TIMESTAMPS; i++) {
        if (record->ns[i] > 0 && (layer->events >> i & 1)) {
            json_write_open(json, JSON_ELEMENT, '{');
            json_write_u64_string(json, "timeUnixNano", record->ns[i] + unix_ns);
            json_write_string(json, "name", str_of(trace_timestamp_name((enum trace_timestamp)i)));
            json_write_close(json, '}');
        }
    }
    json_write_close(json, ']');
}

static void add_attributes(struct json_writer *json, const struct trace_record *record) {
    json_write_open(json, "attributes", '[');
    text_attribute(json, STR("triton.model_name"), record->model);
    number_attribute(json, STR("triton.model_version"), record->version);
    number_attribute(json, STR("triton.trace_id"), record->id);
    number_attribute(json, STR("triton.trace_parent_id"), record->parent_id);
    if (record->request_id.len > 0) {
        text_attribute(json, STR("triton.request_id"), record->request_id);
    }
    json_write_close(json, ']');
}

/* Clause: OpenTelemetry, span status: unset unless the request failed. */
static void add_status(struct json_writer *json, const struct trace_record *record) {
    if (record->ns[TRACE_INFER_RESPONSE_COMPLETE] > 0) {
        return;
    }
    json_write_open(json, "status", '{');
    if (record->failure.len > 0 && utf8_is_valid(record->failure.ptr, record->failure.len)) {
        json_write_string(json, "message", record->failure);
    }
    json_write_u64(json, "code", STATUS_ERROR);
    json_write_close(json, '}');
}

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

static bool span_times(const struct trace_record *record, size_t i, uint64_t *start,
                       uint64_t *end) {
    if (i == 0) {
        return request_times(record, start, end);
    }
    *start = record->ns[LAYERS[i].start];
    *end = record->ns[LAYERS[i].end];
    return *start > 0 && *end > 0;
}

size_t otlp_trace_add(struct buf *out, const struct trace_record *record,
                      const struct otlp_ids *ids, uint64_t unix_ns, bool first) {
    struct json_writer json = {.out = out, .position = first ? JSON_AT_START : JSON_AFTER_VALUE};
    const unsigned char *parent = ids->parent;
    uint64_t start, end;
    size_t n = 0;
    for (size_t i = 0; i < OTLP_SPANS && span_times(record, i, &start, &end); i++, n++) {
        json_write_open(&json, JSON_ELEMENT, '{');
        add_hex(&json, "traceId", ids->trace, TRACE_ID_BYTES);
        add_hex(&json, "spanId", ids->spans[i], SPAN_ID_BYTES);
        if (ids->state.len > 0) {
            json_write_string(&json, "traceState", ids->state);
        }
        if (parent) {
            add_hex(&json, "parentSpanId", parent, SPAN_ID_BYTES);
        }
        json_write_string(&json, "name",
                          i == 0   ? STR("InferRequest")
                          : i == 1 ? record->model
                                   : STR("compute"));
        json_write_u64(&json, "kind", KIND_SERVER);
        json_write_u64_string(&json, "startTimeUnixNano", start + unix_ns);
        json_write_u64_string(&json, "endTimeUnixNano", end + unix_ns);
        if (i <= 1) {
            add_attributes(&json, record);
        }
        add_events(&json, record, &LAYERS[i], unix_ns);
        if (i == 0) {
            add_status(&json, record);
        }
        json_write_close(&json, '}');
        parent = ids->spans[i];
    }
    return n;
}

/* ---- response -------------------------------------------------------------------------------- */

/* 64-bit numbers are strings in OTLP; JSON numbers are accepted too. */
static uint64_t parse_count(yyjson_val *val) {
    struct str text;
    uint64_t count;
    int64_t number;
    if (json_get_string(val, &text)) {
        return num_parse_u64(text, &count) ? count : 0;
    }
    return json_get_i64(val, 0, INT64_MAX, &number) ? (uint64_t)number : 0;
}

uint64_t otlp_trace_rejected_spans(struct arena *arena, struct str answer, struct str *why) {
    static const struct json_limits limits = {
        .max_json_size = UINT16_MAX, .max_json_depth = 16, .max_tensor_elements = 1024};
    struct json_tree tree;
    struct error err;
    *why = STR("");
    if (json_tree_parse(&tree, "the answer", arena, answer, &limits, &err) != ST_OK) {
        return 0;
    }
    yyjson_val *success = json_member(tree.root, "partialSuccess");
    (void)json_get_string(json_member(success, "errorMessage"), why);
    return parse_count(json_member(success, "rejectedSpans"));
}
