/* A JSON text being written, member by member: it knows where commas go, and nothing else. Numbers
 * that are not finite are 0, as JSON has none of them.
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_BASE_JSON_WRITER_H
#define SLUICE_CORE_BASE_JSON_WRITER_H

#include <stdbool.h>

#include "core/base/buf.h"

struct json_writer {
    struct buf *out;
    bool has_items; /* the object or array at hand has something in it */
};

/* Before an element of an array, and before the value of a member, that none of those below
 * writes. */
void json_write_separator(struct json_writer *json);
void json_write_key(struct json_writer *json, const char *name);
/* '{' or '[' of the whole text, of a member, and of an element; '}' or ']'. */
void json_write_open(struct json_writer *json, char bracket);
void json_write_open_member(struct json_writer *json, const char *name, char bracket);
void json_write_open_element(struct json_writer *json, char bracket);
void json_write_close(struct json_writer *json, char bracket);

/* Whole members. */
void json_write_u64(struct json_writer *json, const char *name, uint64_t value);
void json_write_i64(struct json_writer *json, const char *name, int64_t value);
void json_write_f64(struct json_writer *json, const char *name, double value);
void json_write_bool(struct json_writer *json, const char *name, bool value);
void json_write_string(struct json_writer *json, const char *name, struct str text);

#endif
