/* A JSON text being written, member by member: it knows where commas go, and nothing else. Numbers
 * that are not finite are 0, as JSON has none of them.
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_BASE_JSON_OUT_H
#define SLUICE_CORE_BASE_JSON_OUT_H

#include <stdbool.h>

#include "core/base/buf.h"

struct json_out {
    struct buf *out;
    bool begun; /* the object or array at hand has something in it */
};

/* Before an element of an array, and before the value of a member, that none of those below
 * writes. */
void json_separate(struct json_out *json);
void json_key(struct json_out *json, const char *name);
/* '{' or '[' of the whole text, of a member, and of an element; '}' or ']'. */
void json_open(struct json_out *json, char bracket);
void json_open_member(struct json_out *json, const char *name, char bracket);
void json_open_element(struct json_out *json, char bracket);
void json_close(struct json_out *json, char bracket);

/* Whole members. */
void json_u64(struct json_out *json, const char *name, uint64_t value);
void json_i64(struct json_out *json, const char *name, int64_t value);
void json_f64(struct json_out *json, const char *name, double value);
void json_bool(struct json_out *json, const char *name, bool value);
void json_text(struct json_out *json, const char *name, struct str text);

#endif
