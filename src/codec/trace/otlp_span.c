/* The two forms of OTLP. In JSON ids are hexadecimal, 64-bit numbers are strings, enums are
 * numbers. */
#include "codec/trace/otlp_span.h"

#include "codec/json/tree.h"
#include "codec/protobuf/pb.h"
#include "core/base/hex.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

enum { STATUS_ERROR = 2 };

static struct str valid_text(struct str text) {
    return text.len > 0 && utf8_is_valid(text.ptr, text.len) ? text : STR("");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_hex(struct json_writer *json, const char *name, const unsigned char *id, size_t n) {
    char text[2 * TRACE_ID_BYTES];
    hex_encode_lower(id, n, text);
    json_write_string(json, name, str_make(text, 2 * n));
}

static void add_json_value(struct json_writer *json, const struct otlp_attribute *attribute) {
    switch (attribute->kind) {
    case OTLP_TEXT:
        json_write_string(json, "stringValue", valid_text(attribute->text));
        return;
    case OTLP_INTEGER:
        json_write_i64_string(json, "intValue", attribute->integer);
        return;
    case OTLP_NUMBER:
        json_write_f64(json, "doubleValue", attribute->number);
        return;
    case OTLP_TEXTS:
    case OTLP_NUMBERS:
        break;
    }
    json_write_open(json, "arrayValue", '{');
    json_write_open(json, "values", '[');
    for (size_t i = 0; i < attribute->n; i++) {
        json_write_open(json, JSON_ELEMENT, '{');
        if (attribute->kind == OTLP_TEXTS) {
            json_write_string(json, "stringValue", valid_text(attribute->texts[i]));
        } else {
            json_write_f64(json, "doubleValue", attribute->numbers[i]);
        }
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
}

static void add_json_attributes(struct json_writer *json, const struct otlp_attribute *attributes,
                                size_t n) {
    json_write_open(json, "attributes", '[');
    for (size_t i = 0; i < n; i++) {
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_string(json, "key", valid_text(attributes[i].key));
        json_write_open(json, "value", '{');
        add_json_value(json, &attributes[i]);
        json_write_close(json, '}');
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void begin_json(struct buf *out, const struct otlp_attribute *resource, size_t n,
                       struct str version) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "resourceSpans", '[');
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "resource", '{');
    add_json_attributes(&json, resource, n);
    json_write_close(&json, '}');
    json_write_open(&json, "scopeSpans", '[');
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "scope", '{');
    json_write_string(&json, "name", STR("sluice"));
    json_write_string(&json, "version", version);
    json_write_close(&json, '}');
    json_write_open(&json, "spans", '[');
}

static void end_json(struct buf *out) {
    static const char open[] = {']', '}', ']', '}', ']', '}'}; /* since begin_json */
    struct json_writer json = {.out = out, .depth = sizeof(open)};
    for (size_t i = 0; i < sizeof(open); i++) {
        json_write_close(&json, open[i]);
    }
}

static void add_json_events(struct json_writer *json, const struct otlp_span *span,
                            uint64_t unix_ns) {
    json_write_open(json, "events", '[');
    for (size_t i = 0; i < span->n_events; i++) {
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_u64_string(json, "timeUnixNano", span->events[i].ns + unix_ns);
        json_write_string(json, "name", span->events[i].name);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

/* Clause: OpenTelemetry, span status: unset unless the request failed. */
static void add_json_status(struct json_writer *json, struct str failure) {
    json_write_open(json, "status", '{');
    if (failure.len > 0) {
        json_write_string(json, "message", failure);
    }
    json_write_u64(json, "code", STATUS_ERROR);
    json_write_close(json, '}');
}

static void add_json_span(struct buf *out, const struct otlp_span *span, uint64_t unix_ns,
                          bool first) {
    struct json_writer json = {.out = out, .position = first ? JSON_AT_START : JSON_AFTER_VALUE};
    json_write_open(&json, JSON_ELEMENT, '{');
    add_hex(&json, "traceId", span->trace, TRACE_ID_BYTES);
    add_hex(&json, "spanId", span->id, SPAN_ID_BYTES);
    if (span->state.len > 0) {
        json_write_string(&json, "traceState", span->state);
    }
    if (span->has_parent) {
        add_hex(&json, "parentSpanId", span->parent, SPAN_ID_BYTES);
    }
    json_write_string(&json, "name", valid_text(span->name));
    json_write_u64(&json, "kind", span->kind);
    json_write_u64_string(&json, "startTimeUnixNano", span->start_ns + unix_ns);
    json_write_u64_string(&json, "endTimeUnixNano", span->end_ns + unix_ns);
    if (span->n_attributes > 0) {
        add_json_attributes(&json, span->attributes, span->n_attributes);
    }
    add_json_events(&json, span, unix_ns);
    if (span->failed) {
        add_json_status(&json, valid_text(span->failure));
    }
    json_write_close(&json, '}');
}

/* ---- protobuf -------------------------------------------------------------------------------- */

/* opentelemetry/proto/collector/trace/v1, trace/v1, common/v1 and resource/v1. */
enum {
    F_RESOURCE_SPANS = 1,
    F_RESOURCE = 1,
    F_SCOPE_SPANS = 2,
    F_RESOURCE_ATTRIBUTES = 1,
    F_SCOPE = 1,
    F_SPANS = 2,
    F_SCOPE_NAME = 1,
    F_SCOPE_VERSION = 2,
    F_TRACE_ID = 1,
    F_SPAN_ID = 2,
    F_TRACE_STATE = 3,
    F_PARENT_SPAN_ID = 4,
    F_NAME = 5,
    F_KIND = 6,
    F_START = 7,
    F_END = 8,
    F_ATTRIBUTES = 9,
    F_EVENTS = 11,
    F_STATUS = 15,
    F_EVENT_TIME = 1,
    F_EVENT_NAME = 2,
    F_STATUS_MESSAGE = 2,
    F_STATUS_CODE = 3,
    F_KEY = 1,
    F_VALUE = 2,
    F_VALUE_STRING = 1,
    F_VALUE_INT = 3,
    F_VALUE_DOUBLE = 4,
    F_VALUE_ARRAY = 5,
    F_ARRAY_VALUES = 1,
    F_PARTIAL_SUCCESS = 1,
    F_REJECTED_SPANS = 1,
    F_ERROR_MESSAGE = 2,
};

static void add_values(struct buf *out, const struct otlp_attribute *attribute) {
    size_t array = pb_begin(out, F_VALUE_ARRAY);
    for (size_t i = 0; i < attribute->n; i++) {
        size_t value = pb_begin(out, F_ARRAY_VALUES);
        if (attribute->kind == OTLP_TEXTS) {
            pb_add_bytes(out, F_VALUE_STRING, valid_text(attribute->texts[i]));
        } else {
            pb_add_double(out, F_VALUE_DOUBLE, attribute->numbers[i]);
        }
        pb_end(out, value);
    }
    pb_end(out, array);
}

/* Members of a oneof are written also where they are 0 or empty. */
static void add_attributes(struct buf *out, uint32_t number,
                           const struct otlp_attribute *attributes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct otlp_attribute *attribute = &attributes[i];
        size_t start = pb_begin(out, number);
        pb_add_string(out, F_KEY, valid_text(attribute->key));
        size_t value = pb_begin(out, F_VALUE);
        switch (attribute->kind) {
        case OTLP_TEXT:
            pb_add_bytes(out, F_VALUE_STRING, valid_text(attribute->text));
            break;
        case OTLP_INTEGER:
            pb_add_varint(out, F_VALUE_INT, (uint64_t)attribute->integer);
            break;
        case OTLP_NUMBER:
            pb_add_double(out, F_VALUE_DOUBLE, attribute->number);
            break;
        case OTLP_TEXTS:
        case OTLP_NUMBERS:
            add_values(out, attribute);
            break;
        }
        pb_end(out, value);
        pb_end(out, start);
    }
}

static struct str bytes_of(const unsigned char *bytes, size_t n) {
    return str_make((const char *)bytes, n);
}

static void add_span(struct buf *out, const struct otlp_span *span, uint64_t unix_ns) {
    size_t start = pb_begin(out, F_SPANS);
    pb_add_bytes(out, F_TRACE_ID, bytes_of(span->trace, TRACE_ID_BYTES));
    pb_add_bytes(out, F_SPAN_ID, bytes_of(span->id, SPAN_ID_BYTES));
    pb_add_string(out, F_TRACE_STATE, span->state);
    if (span->has_parent) {
        pb_add_bytes(out, F_PARENT_SPAN_ID, bytes_of(span->parent, SPAN_ID_BYTES));
    }
    pb_add_string(out, F_NAME, valid_text(span->name));
    pb_add_number(out, F_KIND, span->kind);
    pb_add_fixed64(out, F_START, span->start_ns + unix_ns);
    pb_add_fixed64(out, F_END, span->end_ns + unix_ns);
    add_attributes(out, F_ATTRIBUTES, span->attributes, span->n_attributes);
    for (size_t i = 0; i < span->n_events; i++) {
        size_t event = pb_begin(out, F_EVENTS);
        pb_add_fixed64(out, F_EVENT_TIME, span->events[i].ns + unix_ns);
        pb_add_string(out, F_EVENT_NAME, span->events[i].name);
        pb_end(out, event);
    }
    if (span->failed) {
        size_t status = pb_begin(out, F_STATUS);
        pb_add_string(out, F_STATUS_MESSAGE, valid_text(span->failure));
        pb_add_number(out, F_STATUS_CODE, STATUS_ERROR);
        pb_end(out, status);
    }
    pb_end(out, start);
}

static void begin_protobuf(struct otlp_request *request, const struct otlp_attribute *resource,
                           size_t n, struct str version) {
    struct buf *out = request->out;
    request->resource_at = pb_begin(out, F_RESOURCE_SPANS);
    size_t start = pb_begin(out, F_RESOURCE);
    add_attributes(out, F_RESOURCE_ATTRIBUTES, resource, n);
    pb_end(out, start);
    request->scope_at = pb_begin(out, F_SCOPE_SPANS);
    start = pb_begin(out, F_SCOPE);
    pb_add_string(out, F_SCOPE_NAME, STR("sluice"));
    pb_add_string(out, F_SCOPE_VERSION, version);
    pb_end(out, start);
}

/* ---- both ------------------------------------------------------------------------------------ */

void otlp_request_begin(struct otlp_request *request, struct buf *out, enum otlp_format format,
                        const struct otlp_attribute *resource, size_t n, struct str version) {
    *request = (struct otlp_request){.out = out, .format = format};
    if (format == OTLP_JSON) {
        begin_json(out, resource, n, version);
    } else {
        begin_protobuf(request, resource, n, version);
    }
}

void otlp_request_add(struct otlp_request *request, const struct otlp_span *span,
                      uint64_t unix_ns) {
    if (request->format == OTLP_JSON) {
        add_json_span(request->out, span, unix_ns, request->n_spans == 0);
    } else {
        add_span(request->out, span, unix_ns);
    }
    request->n_spans++;
}

void otlp_request_end(struct otlp_request *request) {
    if (request->format == OTLP_JSON) {
        end_json(request->out);
    } else {
        pb_end(request->out, request->scope_at);
        pb_end(request->out, request->resource_at);
    }
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

static uint64_t rejected_in_json(struct arena *arena, struct str answer, struct str *why) {
    static const struct json_limits limits = {
        .max_json_size = UINT16_MAX, .max_json_depth = 16, .max_tensor_elements = 1024};
    struct json_tree tree;
    struct error err;
    if (json_tree_parse(&tree, "the answer", arena, answer, &limits, &err) != ST_OK) {
        return 0;
    }
    yyjson_val *success = json_member(tree.root, "partialSuccess");
    (void)json_get_string(json_member(success, "errorMessage"), why);
    return parse_count(json_member(success, "rejectedSpans"));
}

static uint64_t rejected_in_protobuf(struct str answer, struct str *why) {
    struct pb_reader reader = pb_read(answer);
    struct pb_field field;
    struct str success = STR("");
    uint64_t n = 0;
    while (pb_next(&reader, &field)) {
        if (field.number == F_PARTIAL_SUCCESS && field.type == PB_BYTES) {
            success = field.bytes;
        }
    }
    reader = pb_read(success);
    while (pb_next(&reader, &field)) {
        if (field.number == F_REJECTED_SPANS && field.type == PB_VARINT) {
            n = field.value;
        } else if (field.number == F_ERROR_MESSAGE && field.type == PB_BYTES) {
            *why = valid_text(field.bytes);
        }
    }
    return n <= INT64_MAX ? n : 0;
}

uint64_t otlp_rejected_spans(struct arena *arena, enum otlp_format format, struct str answer,
                             struct str *why) {
    *why = STR("");
    return format == OTLP_JSON ? rejected_in_json(arena, answer, why)
                               : rejected_in_protobuf(answer, why);
}
