/* Trace settings over gRPC. */
#include "codec/kserve/trace.h"
#include "codec/kserve/grpc/fields.h"
#include "core/base/num.h"

/* TraceSettingRequest, TraceSettingResponse; a map's entry; SettingValue */
enum { SETTINGS = 1, MODEL_NAME = 2, KEY = 1, VALUE = 2, TEXT = 1 };

/* What a request has for one of the keys: its SettingValue. */
struct setting {
    bool given;
    struct str value;
};

/* Of equal keys the last counts, as in every protobuf map; other names are passed over. */
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

/* The next text of a SettingValue. Returns: false at its end. */
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

/* ---- writing --------------------------------------------------------------------------------- */

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
