/* Separators by position and layout, and the texts of values. */
#include "core/base/json_writer.h"

#include <math.h>
#include <stdlib.h>
#include <yyjson.h>

#include "core/base/num.h"

/* ---- before a value -------------------------------------------------------------------------- */

__attribute__((noinline)) static void new_line(struct json_writer *json) {
    enum { INDENT = 2 };
    size_t n = (size_t)json->depth * INDENT;
    char *to = buf_reserve(json->out, n + 1);
    if (to) {
        to[0] = '\n';
        memset(to + 1, ' ', n);
        buf_advance(json->out, n + 1);
    }
}

static void add_char(struct buf *out, char c) {
    char *to = buf_reserve(out, 1);
    if (to) {
        *to = c;
        buf_advance(out, 1);
    }
}

/* Writes the comma and the spaces before a name, or before a value without one. */
__attribute__((noinline)) static void write_gap(struct json_writer *json) {
    if (json->position == JSON_AFTER_VALUE) {
        add_char(json->out, ',');
    }
    if (json->layout == JSON_LINES && json->depth > 0) {
        new_line(json);
    } else if (json->layout == JSON_SPACED && json->position == JSON_AFTER_VALUE) {
        add_char(json->out, ' ');
    }
}

static void end_key(struct json_writer *json) {
    buf_add_str(json->out, json->layout == JSON_COMPACT ? STR(":") : STR(": "));
    json->position = JSON_AFTER_KEY;
}

void json_write_any_key(struct json_writer *json, struct str name) {
    write_gap(json);
    add_char(json->out, '"');
    buf_add_str(json->out, name);
    add_char(json->out, '"');
    end_key(json);
}

void json_write_key_str(struct json_writer *json, struct str name) {
    write_gap(json);
    json_string_print(json->out, name);
    end_key(json);
}

/* As json_write_begin, which is called by other files, inlined into this one's. Most values of a
 * response follow a key that was written inline. */
static inline struct buf *begin(struct json_writer *json, const char *name) {
    if (name) {
        json_write_any_key(json, str_of(name));
    } else if (json->position != JSON_AFTER_KEY) {
        write_gap(json);
    }
    json->position = JSON_AFTER_VALUE;
    return json->out;
}

struct buf *json_write_begin(struct json_writer *json, const char *name) {
    return begin(json, name);
}

void json_write_open(struct json_writer *json, const char *name, char bracket) {
    add_char(begin(json, name), bracket);
    json->position = JSON_AT_START;
    json->depth++;
}

void json_write_close(struct json_writer *json, char bracket) {
    json->depth--;
    if (json->layout == JSON_LINES && json->position == JSON_AFTER_VALUE) {
        new_line(json);
    }
    add_char(json->out, bracket);
    json->position = JSON_AFTER_VALUE;
}

/* ---- values ---------------------------------------------------------------------------------- */

void json_write_null(struct json_writer *json, const char *name) {
    buf_add_str(begin(json, name), STR("null"));
}

void json_write_bool(struct json_writer *json, const char *name, bool value) {
    enum { BOOL_BYTES = 5 }; /* of the longer */
    char *to = buf_reserve(begin(json, name), BOOL_BYTES);
    if (to) {
        memcpy(to, value ? "true" : "false", BOOL_BYTES);
        buf_advance(json->out, value ? BOOL_BYTES - 1 : BOOL_BYTES);
    }
}

void json_write_u64(struct json_writer *json, const char *name, uint64_t value) {
    buf_add_u64(begin(json, name), value);
}

void json_write_i64(struct json_writer *json, const char *name, int64_t value) {
    buf_add_i64(begin(json, name), value);
}

/* Capacity for all is reserved at once: every tensor of a response has a shape. */
void json_write_i64s(struct json_writer *json, const char *name, const int64_t *values, size_t n) {
    enum { ITEM_BYTES = 22 }; /* at most 20 digits and sign, comma, space */
    struct buf *out = begin(json, name);
    char *to = buf_reserve(out, n * ITEM_BYTES + 2), *at = to;
    if (!to) {
        return;
    }
    *at++ = '[';
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            *at++ = ',';
        }
        if (i > 0 && json->layout != JSON_COMPACT) {
            *at++ = ' ';
        }
        at += num_print_i64(at, values[i]);
    }
    *at++ = ']';
    buf_advance(out, (size_t)(at - to));
}

void json_write_f64(struct json_writer *json, const char *name, double value) {
    json_write_digits(json, name, value, 15);
}

void json_write_digits(struct json_writer *json, const char *name, double value, int digits) {
    buf_printf(begin(json, name), "%.*g", digits, isfinite(value) ? value : 0);
}

void json_write_decimals(struct json_writer *json, const char *name, double value, int decimals) {
    buf_printf(begin(json, name), "%.*f", decimals, isfinite(value) ? value : 0);
}

void json_write_string(struct json_writer *json, const char *name, struct str text) {
    json_string_print(begin(json, name), text);
}

void json_write_u64_string(struct json_writer *json, const char *name, uint64_t value) {
    char text[20];
    json_write_string(json, name, str_make(text, num_print_u64(text, value)));
}

void json_write_i64_string(struct json_writer *json, const char *name, int64_t value) {
    char text[20];
    json_write_string(json, name, str_make(text, num_print_i64(text, value)));
}

void json_write_raw(struct json_writer *json, const char *name, struct str text) {
    buf_add_str(begin(json, name), text);
}

char *json_value_print(struct yyjson_val *value, size_t *n_bytes) {
    return yyjson_val_write(value, YYJSON_WRITE_NOFLAG, n_bytes);
}

void json_write_value(struct json_writer *json, const char *name, struct yyjson_val *value) {
    size_t len = 0;
    char *text = json_value_print(value, &len);
    if (text) {
        json_write_raw(json, name, str_make(text, len));
    } else {
        json->out->failed = true;
    }
    free(text);
}

/* ---- strings --------------------------------------------------------------------------------- */

static void add_json_escape(struct buf *buf, char c) {
    static const char hex[] = "0123456789abcdef";
    static const char plain[] = "\"\\\b\f\n\r\t";
    static const char letters[] = "\"\\bfnrt";
    const char *at = c != '\0' ? strchr(plain, c) : NULL;
    if (at) {
        char text[2] = {'\\', letters[at - plain]};
        buf_add(buf, text, sizeof(text));
    } else {
        char text[6] = {'\\', 'u', '0', '0', hex[(c >> 4) & 15], hex[c & 15]};
        buf_add(buf, text, sizeof(text));
    }
}

/* The characters that cannot be in a string as they are. */
static const bool needs_escape[256] = {
    [0 ... 0x1f] = true,
    ['"'] = true,
    ['\\'] = true,
};

/* Copies `text` to `to` up to the first character that needs an escape. Returns: bytes copied. */
static size_t copy_plain(char *to, struct str text) {
    size_t n = 0;
    while (n < text.len && !needs_escape[(unsigned char)text.ptr[n]]) {
        to[n] = text.ptr[n];
        n++;
    }
    return n;
}

/* Continues after the first character that needs an escape, which `text` begins with. */
static void print_escaped(struct buf *out, struct str text) {
    while (text.len > 0) {
        add_json_escape(out, text.ptr[0]);
        text = str_make(text.ptr + 1, text.len - 1);
        char *to = buf_reserve(out, text.len + 1);
        size_t n = to ? copy_plain(to, text) : text.len;
        buf_advance(out, to ? n : 0);
        text = str_make(text.ptr + n, text.len - n);
    }
    add_char(out, '"');
}

/* Most texts have no character that needs an escape. */
void json_string_print(struct buf *out, struct str text) {
    char *to = buf_reserve(out, text.len + 2);
    if (!to) {
        return;
    }
    to[0] = '"';
    size_t n = copy_plain(to + 1, text);
    if (n < text.len) {
        buf_advance(out, n + 1);
        print_escaped(out, str_make(text.ptr + n, text.len - n));
        return;
    }
    to[n + 1] = '"';
    buf_advance(out, n + 2);
}
