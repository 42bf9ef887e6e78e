/* API keys of a running server: a keys file, which says which keys allow which group of endpoints
 * and is reloaded when it changes, and the check that the front ends call for each request. A
 * request sees one snapshot of the file. docs/security.md has the format.
 *
 * Thread: keys_new, _reload and _free on the main thread; the rest on any. */
#ifndef SLUICE_SERVE_FRONTEND_KEYS_H
#define SLUICE_SERVE_FRONTEND_KEYS_H

#include <stdbool.h>

#include "codec/http1/request.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Groups of endpoints; a key is valid for groups. */
enum keys_group {
    KEYS_NO_GROUP, /* endpoints without a group: closed as soon as there are keys */
    KEYS_INFER,    /* inference */
    KEYS_METADATA, /* the server's and models' metadata and configuration, metrics, reflection */
    KEYS_HEALTH,   /* live and ready */
    KEYS_CONTROL,  /* endpoints that change the server; closed unless the file names keys for it */
    KEYS_GROUPS,
};

/* "infer" */
const char *keys_group_name(enum keys_group group);

struct keys;

/* Reads the file at `path`, which must outlive the keys. Returns: ST_IO or ST_BAD_CONFIG with the
 * path. Owns: *out until keys_free. */
enum status keys_new(const char *path, struct keys **out, struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. No request may be in flight. */
void keys_free(struct keys *keys);
/* Reads the file again. When its bytes changed, publishes the new keys, or keeps the old ones when
 * the file is invalid; each change is logged and counted once. A group that had keys, and of which
 * the file says nothing any more, keeps them. `now`: the file is known to be whole; otherwise a
 * change counts when two calls in a row find it. Returns: true when new keys were published. */
bool keys_reload(struct keys *keys, bool now);
/* Does the group need a key? */
bool keys_are_required(const struct keys *keys, enum keys_group group);

/* Is the field of this name, in lower case, the one with the key? `keys` NULL: no field is. */
bool keys_read_field(const struct keys *keys, struct str name);

/* The size of the WWW-Authenticate value that a 401 response carries (RFC 9110, 11.6.1). */
enum { KEYS_CHALLENGE_BYTES = 128 };

/* Checks whether the request may use the group. `keys` NULL: all requests may. `challenge` is
 * filled on failure. Returns: ST_UNAUTHENTICATED, which is counted. */
enum status keys_authorize_http(const struct keys *keys, enum keys_group group,
                                const struct http_head *head, char challenge[KEYS_CHALLENGE_BYTES],
                                struct error *err) SLUICE_MUST_USE;
/* Looks up the field `name` of a request. Returns: the number of such fields; *value is the first.
 */
typedef size_t keys_field_find(const void *request, const char *name, struct str *value);
/* A keys_field_find over a struct http_head. */
size_t keys_find_http_field(const void *head, const char *name, struct str *value);
/* As keys_authorize_http, for other protocols: `find` looks up the key's field in `request`. */
enum status keys_authorize(const struct keys *keys, enum keys_group group, keys_field_find *find,
                           const void *request, struct error *err) SLUICE_MUST_USE;

/* ---- a parsed file, which is immutable; tests use it directly -------------------------------- */

struct keys_file;

/* Parses `text`; `name` is the file's name in messages. Returns: ST_BAD_CONFIG with the line, the
 * expected and the actual value; never with a key. Owns: *out until keys_file_free. */
enum status keys_file_parse(const char *name, struct str text, struct keys_file **out,
                            struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void keys_file_free(struct keys_file *file);
/* Checks a request that has the field `n_values` times, with `value` first, against the group.
 * Returns: ST_UNAUTHENTICATED. */
enum status keys_file_authorize(const struct keys_file *file, enum keys_group group,
                                size_t n_values, struct str value,
                                struct error *err) SLUICE_MUST_USE;

#endif
