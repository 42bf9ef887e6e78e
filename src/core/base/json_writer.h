/* Writes a JSON text member by member, with the commas. Numbers that are not finite are written as
 * 0, since JSON has no form for them.
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_BASE_JSON_WRITER_H
#define SLUICE_CORE_BASE_JSON_WRITER_H

#include <stdbool.h>

#include "core/base/buf.h"

struct json_writer {
    struct buf *out;
    bool has_items; /* the current object or array is not empty */
};

/* Writes the comma before an element of an array, or before a value that the caller appends to the
 * buffer itself. */
void json_write_separator(struct json_writer *json);
/* Writes a member's name; its value follows. */
void json_write_key(struct json_writer *json, const char *name);
/* '{' or '[' at the start of the text, of a member and of an element; '}' or ']'. */
void json_write_open(struct json_writer *json, char bracket);
void json_write_open_member(struct json_writer *json, const char *name, char bracket);
void json_write_open_element(struct json_writer *json, char bracket);
void json_write_close(struct json_writer *json, char bracket);

/* Write whole members. */
void json_write_u64(struct json_writer *json, const char *name, uint64_t value);
void json_write_i64(struct json_writer *json, const char *name, int64_t value);
void json_write_f64(struct json_writer *json, const char *name, double value);
void json_write_bool(struct json_writer *json, const char *name, bool value);
void json_write_string(struct json_writer *json, const char *name, struct str text);

#endif
