/* Log settings, over HTTP and gRPC. */
#include "codec/kserve/logging.h"

#include "codec/json/tree.h"
#include "codec/kserve/grpc/fields.h"
#include "core/base/json_writer.h"

/* ---- HTTP ------------------------------------------------------------------------------------ */

static const struct str NAMES[V2_LOG_KEYS] = {
    [V2_LOG_FILE] = {"log_file", sizeof("log_file") - 1},
    [V2_LOG_INFO] = {"log_info", sizeof("log_info") - 1},
    [V2_LOG_WARNING] = {"log_warning", sizeof("log_warning") - 1},
    [V2_LOG_ERROR] = {"log_error", sizeof("log_error") - 1},
    [V2_LOG_VERBOSE_LEVEL] = {"log_verbose_level", sizeof("log_verbose_level") - 1},
    [V2_LOG_FORMAT] = {"log_format", sizeof("log_format") - 1},
};

static enum status read_level(const struct json_tree *tree, yyjson_val *value, uint32_t *out,
                              struct error *err) {
    uint64_t level;
    enum status st = json_read_u64(tree, value, &level, err);
    if (st == ST_OK && level > UINT32_MAX) {
        st = error_set(err, ST_BAD_FIELD, "log_verbose_level: expected at most %u", UINT32_MAX);
    }
    if (st == ST_OK) {
        *out = (uint32_t)level;
    }
    return st;
}

/* The reference server's formats differ in how times are written. Both names are taken, and the
 * last one is shown; times are written as ISO 8601 with either. */
static enum status set_format(struct str format, struct v2_log_settings *out, struct error *err) {
    out->iso8601 = str_is(format, "ISO8601");
    return out->iso8601 || str_is(format, "default")
               ? ST_OK
               : error_set(err, ST_BAD_FIELD, "log_format: expected default or ISO8601");
}

static enum status read_format(const struct json_tree *tree, yyjson_val *value,
                               struct v2_log_settings *out, struct error *err) {
    struct str format;
    enum status st = json_read_string(tree, value, &format, err);
    return st == ST_OK ? set_format(format, out, err) : st;
}

static enum status read_setting(const struct json_tree *tree, enum v2_log_key key,
                                yyjson_val *value, struct v2_log_settings *out, struct error *err) {
    switch (key) {
    case V2_LOG_INFO:
        return json_read_bool(tree, value, &out->info, err);
    case V2_LOG_WARNING:
        return json_read_bool(tree, value, &out->warning, err);
    case V2_LOG_ERROR:
        return json_read_bool(tree, value, &out->error, err);
    case V2_LOG_VERBOSE_LEVEL:
        return read_level(tree, value, &out->verbose_level, err);
    case V2_LOG_FORMAT:
        return read_format(tree, value, out, err);
    case V2_LOG_FILE:
    case V2_LOG_KEYS:
        break;
    }
    return error_set(err, ST_UNSUPPORTED,
                     "log file location can not be updated through network protocol (log_file)");
}

enum status v2_log_decode(struct arena *arena, struct str body, const struct json_limits *limits,
                          struct v2_log_settings *out, struct error *err) {
    struct json_tree tree;
    yyjson_val *values[V2_LOG_KEYS];
    *out = (struct v2_log_settings){.verbose_level = 0};
    if (body.len == 0) {
        return error_set(err, ST_BAD_JSON, "expected a JSON object, got an empty body");
    }
    enum status st = json_tree_parse_request(&tree, arena, body, limits, err);
    if (st != ST_OK) {
        return st;
    }
    json_find(tree.root, NAMES, V2_LOG_KEYS, values);
    for (size_t i = 0; st == ST_OK && i < V2_LOG_KEYS; i++) {
        if (values[i]) {
            st = read_setting(&tree, (enum v2_log_key)i, values[i], out, err);
            out->given[i] = st == ST_OK;
        }
    }
    return st;
}

static struct str format_name(const struct v2_log_settings *settings) {
    return settings->iso8601 ? STR("ISO8601") : STR("default");
}

void v2_log_print(struct buf *out, const struct v2_log_settings *settings) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "log_file", STR(""));
    json_write_bool(&json, "log_info", settings->info);
    json_write_bool(&json, "log_warning", settings->warning);
    json_write_bool(&json, "log_error", settings->error);
    json_write_u64(&json, "log_verbose_level", settings->verbose_level);
    json_write_string(&json, "log_format", format_name(settings));
    json_write_close(&json, '}');
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

/* LogSettingsRequest, LogSettingsResponse; a map's entry; SettingValue */
enum { SETTINGS = 1, KEY = 1, VALUE = 2, BOOL = 1, UINT32 = 2, STRING = 3 };

static const struct {
    const char *name;
    uint32_t kind;
} ROWS[V2_LOG_KEYS] = {
    [V2_LOG_FILE] = {"log_file", STRING},
    [V2_LOG_INFO] = {"log_info", BOOL},
    [V2_LOG_WARNING] = {"log_warning", BOOL},
    [V2_LOG_ERROR] = {"log_error", BOOL},
    [V2_LOG_VERBOSE_LEVEL] = {"log_verbose_level", UINT32},
    [V2_LOG_FORMAT] = {"log_format", STRING},
};

/* The value of one key in a request. */
struct setting {
    bool given;
    uint32_t kind; /* BOOL to STRING; 0: none */
    uint64_t number;
    struct str text;
};

static enum status read_value(struct str message, const char *name, struct setting *out,
                              struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    *out = (struct setting){.given = true};
    while (pb_next(&reader, &field)) {
        if (field.number < BOOL || field.number > STRING) {
            continue;
        }
        if (field.type != (field.number == STRING ? PB_BYTES : PB_VARINT)) {
            return error_set(err, ST_BAD_FIELD, "settings: \"%s\" has a wrong type", name);
        }
        out->kind = field.number;
        out->number = field.value;
        out->text = field.bytes;
    }
    return reader.error_text ? pb_reader_error(&reader, "SettingValue", err) : ST_OK;
}

/* Of equal keys the last counts, as in every protobuf map; unknown keys are ignored. */
static enum status read_entry(const struct pb_field *field, struct setting *settings,
                              struct error *err) {
    struct str key, value;
    enum status st = v2_grpc_get_map_entry(field, "settings", &key, &value, err);
    for (size_t i = 0; st == ST_OK && i < V2_LOG_KEYS; i++) {
        if (str_eq(key, str_of(ROWS[i].name))) {
            st = read_value(value, ROWS[i].name, &settings[i], err);
        }
    }
    return st;
}

static enum status apply_setting(enum v2_log_key key, const struct setting *setting,
                                 struct v2_log_settings *out, struct error *err) {
    static const char *const kinds[] = {
        [BOOL] = "bool_param", [UINT32] = "uint32_param", [STRING] = "string_param"};
    if (key == V2_LOG_FILE) {
        return error_set(
            err, ST_UNSUPPORTED,
            "log file location can not be updated through network protocol (log_file)");
    }
    if (setting->kind != ROWS[key].kind) {
        return error_set(err, ST_BAD_FIELD, "settings: expected %s for \"%s\"",
                         kinds[ROWS[key].kind], ROWS[key].name);
    }
    if (key == V2_LOG_FORMAT) {
        return set_format(setting->text, out, err);
    }
    if (key == V2_LOG_VERBOSE_LEVEL) {
        out->verbose_level = (uint32_t)setting->number;
    } else {
        *(key == V2_LOG_INFO      ? &out->info
          : key == V2_LOG_WARNING ? &out->warning
                                  : &out->error) = setting->number != 0;
    }
    return ST_OK;
}

enum status v2_grpc_log_decode(struct str message, struct v2_log_settings *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct setting settings[V2_LOG_KEYS] = {{.given = false}};
    enum status st = ST_OK;
    *out = (struct v2_log_settings){.verbose_level = 0};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == SETTINGS) {
            st = read_entry(&field, settings, err);
        }
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "LogSettingsRequest", err);
    }
    for (size_t i = 0; st == ST_OK && i < V2_LOG_KEYS; i++) {
        if (settings[i].given) {
            st = apply_setting((enum v2_log_key)i, &settings[i], out, err);
            out->given[i] = st == ST_OK;
        }
    }
    return st;
}

/* ---- gRPC: encoding -------------------------------------------------------------------------- */

/* A value of the oneof is written even where it is the default. */
static void encode_setting(struct buf *out, enum v2_log_key key, uint64_t number, struct str text) {
    size_t entry = pb_begin(out, SETTINGS);
    pb_add_bytes(out, KEY, str_of(ROWS[key].name));
    size_t value = pb_begin(out, VALUE);
    if (ROWS[key].kind == STRING) {
        pb_add_bytes(out, STRING, text);
    } else {
        pb_add_varint(out, ROWS[key].kind, number);
    }
    pb_end(out, value);
    pb_end(out, entry);
}

void v2_grpc_log_encode(struct buf *out, const struct v2_log_settings *settings) {
    encode_setting(out, V2_LOG_FILE, 0, STR(""));
    encode_setting(out, V2_LOG_INFO, settings->info, STR(""));
    encode_setting(out, V2_LOG_WARNING, settings->warning, STR(""));
    encode_setting(out, V2_LOG_ERROR, settings->error, STR(""));
    encode_setting(out, V2_LOG_VERBOSE_LEVEL, settings->verbose_level, STR(""));
    encode_setting(out, V2_LOG_FORMAT, 0, format_name(settings));
}
