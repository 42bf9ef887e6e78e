/* The reference server's format of trace files: flat objects with the trace's id in each; data and
 * shapes are strings. */
#include "codec/trace/trace_record.h"

#include "codec/kserve/json_elements_print.h"
#include "core/base/json_writer.h"
#include "core/base/utf8.h"

const char *trace_timestamp_name(enum trace_timestamp mark) {
#define TIMESTAMP(name) [TRACE_##name] = #name,
    static const char *const names[TRACE_TIMESTAMPS] = {
#include "codec/trace/timestamp.def"
    };
#undef TIMESTAMP
    return names[mark];
}

/* Text from a client may be invalid UTF-8: it is written as "". */
static void add_text(struct json_writer *json, const char *name, struct str text) {
    json_write_string(json, name, utf8_is_valid(text.ptr, text.len) ? text : STR(""));
}

static void print_request(struct json_writer *json, const struct trace_record *record) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_u64(json, "id", record->id);
    add_text(json, "model_name", record->model);
    json_write_u64(json, "model_version", record->version);
    if (record->request_id.len > 0) {
        add_text(json, "request_id", record->request_id);
    }
    if (record->parent_id > 0) {
        json_write_u64(json, "parent_id", record->parent_id);
    }
    json_write_close(json, '}');
}

static void print_time(struct json_writer *json, uint64_t id, enum trace_timestamp mark,
                       uint64_t ns) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_u64(json, "id", id);
    json_write_open(json, "timestamps", '[');
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", str_of(trace_timestamp_name(mark)));
    json_write_u64(json, "ns", ns);
    json_write_close(json, '}');
    json_write_close(json, ']');
    json_write_close(json, '}');
}

/* ---- tensors --------------------------------------------------------------------------------- */

static uint64_t element_count(const struct tensor *tensor) {
    uint64_t n = 1;
    for (size_t i = 0; i < tensor->shape.rank; i++) {
        n *= (uint64_t)tensor->shape.dims[i]; /* was checked when the request was received */
    }
    return n;
}

/* The elements, separated by commas; empty where they can't be text. */
static struct str print_elements(struct arena *arena, const struct tensor *tensor) {
    struct tensor shown = *tensor;
    struct element_print print;
    struct error err;
    struct buf text;
    if (shown.datatype == DT_BOOL) { /* printed as 0 and 1 */
        shown.datatype = DT_UINT8;
    }
    buf_init(&text, arena, 256);
    if (element_print_start(&print, arena, &shown, "", &err) != ST_OK ||
        element_print_next(&print, &text, element_count(&shown), &err) != ST_OK || text.failed ||
        text.len == 0) {
        return STR("");
    }
    return str_make(text.data, text.len - 1);
}

static struct str print_shape(struct arena *arena, const struct tensor *tensor) {
    struct buf text;
    buf_init(&text, arena, 64);
    for (size_t i = 0; i < tensor->shape.rank; i++) {
        buf_printf(&text, i > 0 ? ",%lld" : "%lld", (long long)tensor->shape.dims[i]);
    }
    return text.len > 0 ? buf_str(&text) : STR("");
}

static void print_tensor(struct json_writer *json, uint64_t id, const struct trace_tensor *of) {
    const struct tensor *tensor = &of->tensor;
    struct arena *arena = json->out->arena;
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_u64(json, "id", id);
    json_write_string(json, "activity",
                      of->is_output ? STR("TENSOR_BACKEND_OUTPUT") : STR("TENSOR_QUEUE_INPUT"));
    json_write_open(json, "tensor", '{');
    add_text(json, "name", tensor->name);
    json_write_string(json, "data", print_elements(arena, tensor));
    json_write_string(json, "shape", print_shape(arena, tensor));
    json_write_string(json, "dtype", str_of(datatype_name(tensor->datatype)));
    json_write_close(json, '}');
    json_write_close(json, '}');
}

void trace_record_print(struct buf *out, const struct trace_record *record, bool times) {
    struct json_writer json = {.out = out};
    print_request(&json, record);
    for (size_t i = 0; times && i < TRACE_TIMESTAMPS; i++) {
        if (record->ns[i] > 0) {
            print_time(&json, record->id, (enum trace_timestamp)i, record->ns[i]);
        }
    }
    for (size_t i = 0; i < record->n_tensors; i++) {
        print_tensor(&json, record->id, &record->tensors[i]);
    }
}
