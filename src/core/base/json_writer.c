/* Writes a comma before every item but the first. */
#include "core/base/json_writer.h"

#include <math.h>

void json_write_separator(struct json_writer *json) {
    if (json->has_items) {
        buf_add_char(json->out, ',');
    }
    json->has_items = true;
}

void json_write_key(struct json_writer *json, const char *name) {
    json_write_separator(json);
    buf_add_char(json->out, '"');
    buf_add_str(json->out, str_of(name));
    buf_add_str(json->out, STR("\":"));
}

void json_write_open(struct json_writer *json, char bracket) {
    buf_add_char(json->out, bracket);
    json->has_items = false;
}

void json_write_open_member(struct json_writer *json, const char *name, char bracket) {
    json_write_key(json, name);
    json_write_open(json, bracket);
}

void json_write_open_element(struct json_writer *json, char bracket) {
    json_write_separator(json);
    json_write_open(json, bracket);
}

void json_write_close(struct json_writer *json, char bracket) {
    buf_add_char(json->out, bracket);
    json->has_items = true;
}

void json_write_u64(struct json_writer *json, const char *name, uint64_t value) {
    json_write_key(json, name);
    buf_add_u64(json->out, value);
}

void json_write_i64(struct json_writer *json, const char *name, int64_t value) {
    json_write_key(json, name);
    buf_add_i64(json->out, value);
}

void json_write_f64(struct json_writer *json, const char *name, double value) {
    json_write_key(json, name);
    buf_printf(json->out, "%.15g", isfinite(value) ? value : 0);
}

void json_write_bool(struct json_writer *json, const char *name, bool value) {
    json_write_key(json, name);
    buf_add_str(json->out, value ? STR("true") : STR("false"));
}

void json_write_string(struct json_writer *json, const char *name, struct str text) {
    json_write_key(json, name);
    buf_add_json_string(json->out, text);
}
