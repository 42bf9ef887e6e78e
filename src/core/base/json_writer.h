/* Writes a JSON text value by value, with the commas, colons and brackets between. All JSON that
 * Sluice writes goes through it, except the data of tensors (codec/kserve/json_elements_print.h),
 * the lines of the log and a few constant responses (docs/decisions/035).
 *
 * Each function that writes a value has a `name`: the name of the member that it is, a text without
 * characters that need an escape; or JSON_ELEMENT where it is an element of an array, the whole
 * text, or the value after json_write_key or json_write_key_str.
 *
 *     struct json_writer json = {.out = &out};
 *     json_write_open(&json, JSON_ELEMENT, '{');
 *     json_write_u64(&json, "id", 7);
 *     json_write_open(&json, "shape", '[');
 *     json_write_i64(&json, JSON_ELEMENT, -1);
 *     json_write_close(&json, ']');
 *     json_write_close(&json, '}');
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_BASE_JSON_WRITER_H
#define SLUICE_CORE_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/buf.h"

struct yyjson_val;

enum json_layout {
    JSON_COMPACT, /* {"a":[1,2]}: what programs read */
    JSON_SPACED,  /* {"a": [1, 2]} */
    JSON_LINES,   /* each member and element on a line of its own, indented by two spaces */
};

/* What was written last in the current object or array. */
enum json_position {
    JSON_AT_START, /* its bracket, or nothing at all */
    JSON_AFTER_VALUE,
    JSON_AFTER_KEY,
};

struct json_writer {
    struct buf *out;
    enum json_position position;
    enum json_layout layout; /* may be changed between two values */
    unsigned depth;          /* open brackets */
};

/* The `name` of a value that has none. */
#define JSON_ELEMENT ((const char *)0)

/* Appends `text` (UTF-8) as a JSON string with its quotes: quotes, backslashes and control
 * characters are escaped. What the writer uses, and all of a JSON text that is one string. */
void json_string_print(struct buf *out, struct str text);

/* Writes a name as json_write_key, in any layout. */
void json_write_any_key(struct json_writer *json, struct str name);

/* Writes a member's name; its value follows. Inline, so that a literal is copied by a few
 * instructions, where a name that is given to the functions below is measured and copied by calls:
 * 60 instructions a member. For the ten members of an inference response. */
static inline void json_write_key(struct json_writer *json, const char *name) {
    struct str key = str_of(name);
    char *to = json->layout == JSON_COMPACT ? buf_reserve(json->out, key.len + 4) : NULL;
    if (!to) {
        json_write_any_key(json, key);
        return;
    }
    size_t n = json->position == JSON_AFTER_VALUE;
    to[0] = ',';
    to[n++] = '"';
    memcpy(to + n, key.ptr, key.len);
    n += key.len;
    to[n++] = '"';
    to[n++] = ':';
    buf_advance(json->out, n);
    json->position = JSON_AFTER_KEY;
}
/* The same for a name that may need escapes; UTF-8. */
void json_write_key_str(struct json_writer *json, struct str name);

/* Writes what is before a value: the name, or the comma of an element. Returns: the buffer, to
 * which the caller appends one whole value, such as the data of a tensor. */
struct buf *json_write_begin(struct json_writer *json, const char *name);

/* '{' or '[', which begins a value; '}' or ']', which ends it. */
void json_write_open(struct json_writer *json, const char *name, char bracket);
void json_write_close(struct json_writer *json, char bracket);

void json_write_null(struct json_writer *json, const char *name);
void json_write_bool(struct json_writer *json, const char *name, bool value);
void json_write_u64(struct json_writer *json, const char *name, uint64_t value);
void json_write_i64(struct json_writer *json, const char *name, int64_t value);
/* An array, such as a shape, in one line in any layout. */
void json_write_i64s(struct json_writer *json, const char *name, const int64_t *values, size_t n);
/* Numbers that are not finite are written as 0, since JSON has no form for them. With 15
 * significant digits, with `digits` of them, or with `decimals` after the point. */
void json_write_f64(struct json_writer *json, const char *name, double value);
void json_write_digits(struct json_writer *json, const char *name, double value, int digits);
void json_write_decimals(struct json_writer *json, const char *name, double value, int decimals);
/* `text` is UTF-8. */
void json_write_string(struct json_writer *json, const char *name, struct str text);
/* A number in quotes, as protocols write numbers that a double can't hold. */
void json_write_u64_string(struct json_writer *json, const char *name, uint64_t value);
void json_write_i64_string(struct json_writer *json, const char *name, int64_t value);
/* `text` is JSON. */
void json_write_raw(struct json_writer *json, const char *name, struct str text);
/* A value that was parsed, with its content, without spaces; nothing when out of memory, which
 * out->failed then tells. */
void json_write_value(struct json_writer *json, const char *name, struct yyjson_val *value);
/* Prints a parsed value as JSON without spaces, NUL-terminated. `n_bytes` may be NULL. Returns:
 * NULL when out of memory. Owns: the caller, by free. */
char *json_value_print(struct yyjson_val *value, size_t *n_bytes) SLUICE_MUST_USE;

#endif
