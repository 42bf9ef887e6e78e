/* Commas: before everything but the first. */
#include "core/base/json_out.h"

#include <math.h>

void json_separate(struct json_out *json) {
    if (json->begun) {
        buf_add_char(json->out, ',');
    }
    json->begun = true;
}

void json_key(struct json_out *json, const char *name) {
    json_separate(json);
    buf_add_char(json->out, '"');
    buf_add_str(json->out, str_of(name));
    buf_add_str(json->out, STR("\":"));
}

void json_open(struct json_out *json, char bracket) {
    buf_add_char(json->out, bracket);
    json->begun = false;
}

void json_open_member(struct json_out *json, const char *name, char bracket) {
    json_key(json, name);
    json_open(json, bracket);
}

void json_open_element(struct json_out *json, char bracket) {
    json_separate(json);
    json_open(json, bracket);
}

void json_close(struct json_out *json, char bracket) {
    buf_add_char(json->out, bracket);
    json->begun = true;
}

void json_u64(struct json_out *json, const char *name, uint64_t value) {
    json_key(json, name);
    buf_add_u64(json->out, value);
}

void json_i64(struct json_out *json, const char *name, int64_t value) {
    json_key(json, name);
    buf_add_i64(json->out, value);
}

void json_f64(struct json_out *json, const char *name, double value) {
    json_key(json, name);
    buf_printf(json->out, "%.15g", isfinite(value) ? value : 0);
}

void json_bool(struct json_out *json, const char *name, bool value) {
    json_key(json, name);
    buf_add_str(json->out, value ? STR("true") : STR("false"));
}

void json_text(struct json_out *json, const char *name, struct str text) {
    json_key(json, name);
    buf_add_json_string(json->out, text);
}
