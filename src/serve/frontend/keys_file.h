/* A parsed keys file: which keys allow which group of endpoints. Immutable. docs/security.md has
 * the format.
 *
 * Only digests of the keys are kept. Each check compares the digest with all of a group's in
 * constant time, so that its duration does not depend on the keys.
 *
 * Thread: any. */
#ifndef SLUICE_SERVE_FRONTEND_KEYS_FILE_H
#define SLUICE_SERVE_FRONTEND_KEYS_FILE_H

#include <stdbool.h>

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

struct keys_file;

/* Parses `text`; `name` is the file's name in messages. Returns: ST_BAD_CONFIG with the line, the
 * expected and the actual value; never with a key. Owns: *out until keys_file_free. */
enum status keys_file_parse(const char *name, struct str text, struct keys_file **out,
                            struct error *err) SLUICE_MUST_USE;
enum { KEYS_NAMES_BYTES = 64 };
/* Groups that have keys in `previous`: one of which `file` says nothing takes these keys. Prints
 * the names of these groups, and of those that `file` says are open: "health, metadata". Returns:
 * ST_NO_MEMORY. */
enum status keys_file_keep(struct keys_file *file, const struct keys_file *previous,
                           char kept[KEYS_NAMES_BYTES], char opened[KEYS_NAMES_BYTES],
                           struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void keys_file_free(struct keys_file *file);

/* The name of the field with the key, in lower case: "authorization", or the one that the file
 * sets. NUL-terminated. */
const char *keys_file_field(const struct keys_file *file);
/* Is the field's value the key itself (true), or "Bearer KEY" (false)? */
bool keys_file_has_raw_key(const struct keys_file *file);
/* Does the group need a key, or is it closed? */
bool keys_file_requires_key(const struct keys_file *file, enum keys_group group);
/* Checks a request that has the field `n_values` times, with `value` first, against the group.
 * Returns: ST_UNAUTHENTICATED. */
enum status keys_file_authorize(const struct keys_file *file, enum keys_group group,
                                size_t n_values, struct str value,
                                struct error *err) SLUICE_MUST_USE;
/* "infer" */
const char *keys_group_name(enum keys_group group);

#endif
