/* Log settings over HTTP. */
#include "codec/kserve/logging.h"

#include "codec/json/read.h"
#include "core/base/json_writer.h"

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
    int64_t level;
    enum status st = json_read_i64(tree, value, 0, &level, err);
    if (st == ST_OK && level > UINT32_MAX) {
        st = error_set(err, ST_BAD_FIELD, "log_verbose_level: expected at most %u", UINT32_MAX);
    }
    if (st == ST_OK) {
        *out = (uint32_t)level;
    }
    return st;
}

static enum status read_format(const struct json_tree *tree, yyjson_val *value, struct error *err) {
    struct str format;
    enum status st = json_read_string(tree, value, &format, err);
    return st != ST_OK || str_is(format, "ISO8601")
               ? st
               : error_set(err, ST_NOT_READY,
                           "log_format: expected ISO8601, the only one there is");
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
        return read_format(tree, value, err);
    case V2_LOG_FILE:
    case V2_LOG_KEYS:
        break;
    }
    return error_set(err, ST_UNSUPPORTED, "log_file: the log is standard error");
}

enum status v2_log_decode(struct arena *arena, struct str body, const struct json_limits *limits,
                          struct v2_log_settings *out, struct error *err) {
    struct json_tree tree;
    yyjson_val *values[V2_LOG_KEYS];
    *out = (struct v2_log_settings){.verbose_level = 0};
    if (body.len == 0) {
        return error_set(err, ST_INTERNAL, "expected a JSON object, got an empty body");
    }
    enum status st = json_tree_parse_request(&tree, arena, body, limits, err);
    if (st != ST_OK) {
        return st;
    }
    json_find(tree.root, NAMES, V2_LOG_KEYS, values);
    for (size_t i = 0; st == ST_OK && i < V2_LOG_KEYS; i++) {
        if (values[i] && !yyjson_is_null(values[i])) {
            st = read_setting(&tree, (enum v2_log_key)i, values[i], out, err);
            out->given[i] = st == ST_OK;
        }
    }
    return st == ST_BAD_FIELD ? (err->status = ST_INTERNAL) : st;
}

void v2_log_print(struct buf *out, const struct v2_log_settings *settings) {
    struct json_writer json = {.out = out};
    json_write_open(&json, '{');
    json_write_string(&json, "log_file", STR(""));
    json_write_bool(&json, "log_info", settings->info);
    json_write_bool(&json, "log_warning", settings->warning);
    json_write_bool(&json, "log_error", settings->error);
    json_write_u64(&json, "log_verbose_level", settings->verbose_level);
    json_write_string(&json, "log_format", STR("ISO8601"));
    json_write_close(&json, '}');
}
