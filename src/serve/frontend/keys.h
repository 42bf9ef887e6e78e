/* Keys of a running server: a file of them (keys_file.h) that is looked at again, and what the
 * front ends ask of it. A request sees one state of the file, whole.
 *
 * Thread: keys_new, _check and _free on the main thread; the rest on any. */
#ifndef SLUICE_SERVE_FRONTEND_KEYS_H
#define SLUICE_SERVE_FRONTEND_KEYS_H

#include <stdbool.h>

#include "codec/http1/request.h"
#include "core/base/status.h"
#include "serve/frontend/keys_file.h"

struct keys;

/* Reads the file at `path`, which must outlive the keys. Returns: ST_IO or ST_BAD_CONFIG with the
 * path. Owns: *out until keys_free. */
enum status keys_new(const char *path, struct keys **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. No request may be under way. */
void keys_free(struct keys *keys);
/* Reads the file again. Other bytes are taken over, or leave what there is when they can't be used;
 * either is logged and counted, once for each change. Returns: true when they were taken over. */
bool keys_reload(struct keys *keys);
/* Does the group need a key? */
bool keys_are_required(const struct keys *keys, enum keys_group group);

/* What a refused client is told besides the error (RFC 9110, 11.6.1): the value of
 * WWW-Authenticate. */
enum { KEYS_CHALLENGE_BYTES = 128 };

/* May this request use the group? `keys` NULL: whoever asks may. `challenge` is filled in when not.
 * Returns: ST_UNAUTHENTICATED, counted. */
enum status keys_authorize_http(const struct keys *keys, enum keys_group group,
                                const struct http_head *head, char challenge[KEYS_CHALLENGE_BYTES],
                                struct error *err) __attribute__((warn_unused_result));
/* The value of the field `name` of a request. Returns: how many such fields it has. */
typedef size_t keys_field_find(const void *request, const char *name, struct str *value);
/* The same for other protocols: `find` looks the key's field up in `request`. */
enum status keys_admit(const struct keys *keys, enum keys_group group, keys_field_find *find,
                       const void *request, struct error *err) __attribute__((warn_unused_result));

#endif
