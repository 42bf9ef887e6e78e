/* A file of keys, once read: which keys open which group of endpoints. Immutable, and pure: what
 * comes in is text and what goes out is a verdict. docs/security.md has the format.
 *
 * Only digests of the keys are kept, and all of a group's are compared, each in the same time: what
 * a verdict takes says nothing of the keys.
 *
 * Thread: any. */
#ifndef SLUICE_SERVE_FRONTEND_KEYS_FILE_H
#define SLUICE_SERVE_FRONTEND_KEYS_FILE_H

#include <stdbool.h>

#include "core/base/status.h"
#include "core/base/str.h"

/* Endpoints that are opened together. */
enum keys_group {
    KEYS_NO_GROUP, /* of what nobody has put in one: closed as soon as there are keys */
    KEYS_INFER,    /* inference */
    KEYS_METADATA, /* the server's and models' metadata and configuration, metrics, reflection */
    KEYS_HEALTH,   /* live and ready */
    KEYS_CONTROL,  /* what changes the server; closed unless the file names keys for it */
    KEYS_GROUPS,
};

struct keys_file;

/* Reads `text`; `name` is what messages call it. Returns: ST_BAD_CONFIG with the line, what was
 * expected, and what is there; never a key. Owns: *out until keys_file_free. */
enum status keys_file_parse(const char *name, struct str text, struct keys_file **out,
                            struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. */
void keys_file_free(struct keys_file *file);

/* The name of the field that carries a key, in lower case: "authorization", or what the file
 * says. NUL-terminated. */
const char *keys_file_field(const struct keys_file *file);
/* Does the field hold the key itself (true), or "Bearer KEY"? */
bool keys_file_has_raw_key(const struct keys_file *file);
/* Does the group need a key (or is it closed)? */
bool keys_file_requires_key(const struct keys_file *file, enum keys_group group);
/* May a request that has the field `n_values` times, with `value` first, use the group? Returns:
 * ST_UNAUTHENTICATED with a sentence. */
enum status keys_file_authorize(const struct keys_file *file, enum keys_group group,
                                size_t n_values, struct str value, struct error *err)
    __attribute__((warn_unused_result));
/* "infer" */
const char *keys_group_name(enum keys_group group);

#endif
