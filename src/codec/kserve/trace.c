/* Trace settings, over HTTP and gRPC, and the rules of their values. */
#include "codec/kserve/trace.h"

#include <inttypes.h>

#include "codec/json/tree.h"
#include "codec/kserve/grpc/fields.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"

static const struct str NAMES[V2_TRACE_KEYS] = {
    [V2_TRACE_FILE] = {"trace_file", sizeof("trace_file") - 1},
    [V2_TRACE_LEVEL] = {"trace_level", sizeof("trace_level") - 1},
    [V2_TRACE_RATE] = {"trace_rate", sizeof("trace_rate") - 1},
    [V2_TRACE_COUNT] = {"trace_count", sizeof("trace_count") - 1},
    [V2_TRACE_FREQUENCY] = {"log_frequency", sizeof("log_frequency") - 1},
};

/* ---- values ---------------------------------------------------------------------------------- */

const char *v2_trace_key_name(enum v2_trace_key key) {
    return NAMES[key].ptr;
}

enum status v2_trace_file_error(struct error *err) {
    return error_set(err, ST_UNSUPPORTED,
                     "trace file location can not be updated through network protocol: "
                     "trace_file can only be set when the server starts "
                     "(--trace-config triton,file=FILE)");
}

enum status v2_trace_parse_level(struct str word, size_t n, struct v2_trace_update *out,
                                 struct error *err) {
    if (str_is(word, "OFF") && n > 1) {
        return error_set(err, ST_BAD_FIELD, "trace_level: expected OFF alone, got %zu levels", n);
    }
    bool off = str_is(word, "OFF");
    uint32_t bit = str_is(word, "TIMESTAMPS") ? V2_TRACE_TIMESTAMPS
                   : str_is(word, "TENSORS")  ? V2_TRACE_TENSORS
                                              : 0;
    if (off || bit) {
        out->change[V2_TRACE_LEVEL] = V2_TRACE_SET;
        out->values.level |= bit;
    }
    return ST_OK;
}

enum status v2_trace_parse_number(enum v2_trace_key key, struct str text,
                                  struct v2_trace_update *out, struct error *err) {
    int64_t number, least = key == V2_TRACE_COUNT ? -1 : 0;
    if (!num_parse_i64(text, &number) || number < least || number > INT32_MAX) {
        return error_set(err, ST_BAD_FIELD,
                         "%s: expected a whole number from %" PRId64 " to %d, got \"%.*s\"",
                         v2_trace_key_name(key), least, INT32_MAX,
                         (int)(text.len < 32 ? text.len : 32), text.ptr ? text.ptr : "");
    }
    out->change[key] = V2_TRACE_SET;
    if (key == V2_TRACE_COUNT) {
        out->values.count = (int32_t)number;
    } else {
        *(key == V2_TRACE_RATE ? &out->values.rate : &out->values.log_frequency) = (uint32_t)number;
    }
    return ST_OK;
}

/* ---- HTTP: decoding -------------------------------------------------------------------------- */

static enum status read_level(const struct json_tree *tree, yyjson_val *value,
                              struct v2_trace_update *out, struct error *err) {
    enum status st = json_expect_array(tree, value, err);
    size_t n = st == ST_OK ? json_count(value) : 0;
    yyjson_val *element = n > 0 ? json_first(value) : NULL;
    for (size_t i = 0; st == ST_OK && i < n; i++, element = json_next(element)) {
        struct str word;
        st = json_read_string(tree, element, &word, err);
        if (st == ST_OK) {
            st = v2_trace_parse_level(word, n, out, err);
        }
    }
    return st;
}

static enum status read_setting(const struct json_tree *tree, enum v2_trace_key key,
                                yyjson_val *value, struct v2_trace_update *out, struct error *err) {
    struct str text;
    if (key == V2_TRACE_FILE) {
        return v2_trace_file_error(err);
    }
    if (json_is_null(value)) {
        out->change[key] = V2_TRACE_CLEAR;
        return ST_OK;
    }
    if (key == V2_TRACE_LEVEL) {
        return read_level(tree, value, out, err);
    }
    enum status st = json_read_string(tree, value, &text, err);
    return st == ST_OK ? v2_trace_parse_number(key, text, out, err) : st;
}

enum status v2_trace_decode(struct arena *arena, struct str body, const struct json_limits *limits,
                            struct v2_trace_update *out, struct error *err) {
    struct json_tree tree;
    *out = (struct v2_trace_update){.model = STR("")};
    if (body.len == 0) {
        return error_set(err, ST_BAD_JSON, "expected a JSON object, got an empty body");
    }
    enum status st = json_tree_parse_request(&tree, arena, body, limits, err);
    for (size_t i = 0; st == ST_OK && i < V2_TRACE_KEYS; i++) {
        yyjson_val *value = json_member(tree.root, NAMES[i].ptr); /* null has a meaning here */
        if (value) {
            st = read_setting(&tree, (enum v2_trace_key)i, value, out, err);
        }
    }
    return st;
}

/* ---- HTTP: encoding -------------------------------------------------------------------------- */

static void print_levels(struct json_writer *json, uint32_t level) {
    json_write_open(json, v2_trace_key_name(V2_TRACE_LEVEL), '[');
    if (level == 0) {
        json_write_string(json, JSON_ELEMENT, STR("OFF"));
    }
    if (level & V2_TRACE_TIMESTAMPS) {
        json_write_string(json, JSON_ELEMENT, STR("TIMESTAMPS"));
    }
    if (level & V2_TRACE_TENSORS) {
        json_write_string(json, JSON_ELEMENT, STR("TENSORS"));
    }
    json_write_close(json, ']');
}

static void print_number(struct json_writer *json, enum v2_trace_key key, int64_t number) {
    char text[20];
    json_write_string(json, v2_trace_key_name(key), str_make(text, num_print_i64(text, number)));
}

void v2_trace_print(struct buf *out, const struct v2_trace_settings *settings) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    print_levels(&json, settings->values.level);
    print_number(&json, V2_TRACE_RATE, settings->values.rate);
    print_number(&json, V2_TRACE_COUNT, settings->values.count);
    if (!settings->opentelemetry) {
        print_number(&json, V2_TRACE_FREQUENCY, settings->values.log_frequency);
        json_write_string(&json, v2_trace_key_name(V2_TRACE_FILE), str_of(settings->file));
    }
    json_write_string(&json, "trace_mode",
                      settings->opentelemetry ? STR("opentelemetry") : STR("triton"));
    for (size_t i = 0; i < settings->n_options; i++) {
        json_write_string(&json, settings->options[i].name, str_of(settings->options[i].value));
    }
    json_write_close(&json, '}');
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

/* TraceSettingRequest, TraceSettingResponse; a map's entry; SettingValue */
enum { SETTINGS = 1, MODEL_NAME = 2, KEY = 1, VALUE = 2, TEXT = 1 };

/* The SettingValue of one key in a request. */
struct setting {
    bool given;
    struct str value;
};

/* Of equal keys the last counts, as in every protobuf map; unknown keys are ignored. */
static enum status read_entry(const struct pb_field *field, struct setting *settings,
                              struct error *err) {
    struct str key, value;
    enum status st = v2_grpc_get_map_entry(field, "settings", &key, &value, err);
    for (size_t i = 0; st == ST_OK && i < V2_TRACE_KEYS; i++) {
        if (str_is(key, v2_trace_key_name((enum v2_trace_key)i))) {
            settings[i] = (struct setting){true, value};
        }
    }
    return st;
}

/* Reads the next text of a SettingValue. Returns: false if there is none. */
static bool next_text(struct pb_reader *reader, enum v2_trace_key key, struct str *out,
                      enum status *st, struct error *err) {
    struct pb_field field;
    while (pb_next(reader, &field)) {
        if (field.number == TEXT) {
            *st = pb_get_string(&field, v2_trace_key_name(key), out, err);
            return *st == ST_OK;
        }
    }
    if (reader->error_text) {
        *st = pb_reader_error(reader, "SettingValue", err);
    }
    return false;
}

static enum status apply_setting(enum v2_trace_key key, struct str value,
                                 struct v2_trace_update *out, struct error *err) {
    enum status st = ST_OK;
    struct str text;
    size_t n = 0;
    if (key == V2_TRACE_FILE) {
        return v2_trace_file_error(err);
    }
    struct pb_reader reader = pb_read(value);
    while (next_text(&reader, key, &text, &st, err)) {
        n++;
    }
    if (st == ST_OK && n == 0) {
        out->change[key] = V2_TRACE_CLEAR;
        return ST_OK;
    }
    if (st == ST_OK && n > 1 && key != V2_TRACE_LEVEL) {
        st = error_set(err, ST_BAD_FIELD, "%s: expected one value, got %zu", v2_trace_key_name(key),
                       n);
    }
    enum status end = ST_OK;
    reader = pb_read(value);
    while (st == ST_OK && next_text(&reader, key, &text, &end, err)) {
        st = key == V2_TRACE_LEVEL ? v2_trace_parse_level(text, n, out, err)
                                   : v2_trace_parse_number(key, text, out, err);
    }
    return st;
}

enum status v2_grpc_trace_decode(struct str message, struct v2_trace_update *out,
                                 struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct setting settings[V2_TRACE_KEYS] = {{.given = false}};
    enum status st = ST_OK;
    *out = (struct v2_trace_update){.model = STR("")};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == SETTINGS) {
            st = read_entry(&field, settings, err);
        } else if (field.number == MODEL_NAME) {
            st = pb_get_string(&field, "model_name", &out->model, err);
        }
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "TraceSettingRequest", err);
    }
    for (size_t i = 0; st == ST_OK && i < V2_TRACE_KEYS; i++) {
        if (settings[i].given) {
            st = apply_setting((enum v2_trace_key)i, settings[i].value, out, err);
        }
    }
    return st;
}

/* ---- gRPC: encoding -------------------------------------------------------------------------- */

static size_t begin_entry(struct buf *out, const char *name, size_t *entry) {
    *entry = pb_begin(out, SETTINGS);
    pb_add_bytes(out, KEY, str_of(name));
    return pb_begin(out, VALUE);
}

static void end_entry(struct buf *out, size_t entry, size_t value) {
    pb_end(out, value);
    pb_end(out, entry);
}

static void add_text(struct buf *out, const char *name, struct str text) {
    size_t entry, value = begin_entry(out, name, &entry);
    pb_add_bytes(out, TEXT, text);
    end_entry(out, entry, value);
}

static void add_number(struct buf *out, enum v2_trace_key key, int64_t number) {
    char text[20];
    add_text(out, v2_trace_key_name(key), str_make(text, num_print_i64(text, number)));
}

static void add_levels(struct buf *out, uint32_t level) {
    size_t entry, value = begin_entry(out, v2_trace_key_name(V2_TRACE_LEVEL), &entry);
    if (level == 0) {
        pb_add_bytes(out, TEXT, STR("OFF"));
    }
    if (level & V2_TRACE_TIMESTAMPS) {
        pb_add_bytes(out, TEXT, STR("TIMESTAMPS"));
    }
    if (level & V2_TRACE_TENSORS) {
        pb_add_bytes(out, TEXT, STR("TENSORS"));
    }
    end_entry(out, entry, value);
}

void v2_grpc_trace_encode(struct buf *out, const struct v2_trace_settings *settings) {
    add_levels(out, settings->values.level);
    add_number(out, V2_TRACE_RATE, settings->values.rate);
    add_number(out, V2_TRACE_COUNT, settings->values.count);
    if (!settings->opentelemetry) {
        add_number(out, V2_TRACE_FREQUENCY, settings->values.log_frequency);
        add_text(out, v2_trace_key_name(V2_TRACE_FILE), str_of(settings->file));
    }
    add_text(out, "trace_mode", settings->opentelemetry ? STR("opentelemetry") : STR("triton"));
    for (size_t i = 0; i < settings->n_options; i++) {
        add_text(out, settings->options[i].name, str_of(settings->options[i].value));
    }
}
