/* Categories of endpoints that need a header of a fixed value, as Triton's --http-restricted-api
 * and --grpc-restricted-protocol: "CATEGORY,CATEGORY:HEADER=VALUE". An unnamed category is open.
 * Keys (keys.h) are checked besides.
 *
 * Thread: immutable after restrictions_parse. */
#ifndef SLUICE_SERVE_FRONTEND_RESTRICTIONS_H
#define SLUICE_SERVE_FRONTEND_RESTRICTIONS_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/os/secret.h"
#include "serve/frontend/keys.h"

/* Triton's categories, and the endpoints that have none. */
enum restricted_category {
    RESTRICTED_HEALTH,
    RESTRICTED_METADATA,
    RESTRICTED_INFERENCE,
    RESTRICTED_SHARED_MEMORY,
    RESTRICTED_MODEL_CONFIG,
    RESTRICTED_MODEL_REPOSITORY,
    RESTRICTED_STATISTICS,
    RESTRICTED_TRACE,
    RESTRICTED_LOGGING,
    RESTRICTED_CATEGORIES,
};

struct restriction {
    const char *field; /* in lower case; NULL: the category is open */
    struct secret_digest value;
};

struct restrictions {
    struct restriction of[RESTRICTED_CATEGORIES];
    const char *what; /* "API", "protocol": in messages */
};

/* Parses `n` settings. The fields get `prefix` in front. Returns: ST_BAD_CONFIG with the text,
 * never with a value. Owns: texts are in the arena. */
enum status restrictions_parse(const char *const *texts, size_t n, const char *what,
                               const char *prefix, struct arena *arena, struct restrictions *out,
                               struct error *err) SLUICE_MUST_USE;

/* Is the field of this name, in lower case, needed by a category? `self` NULL: none is. */
bool restrictions_read_field(const struct restrictions *self, struct str name);

/* Checks a request of the category, whose fields `find` looks up. `self` NULL: all are open.
 * Returns: ST_RESTRICTED with the name of the field. */
enum status restrictions_check(const struct restrictions *self, enum restricted_category category,
                               keys_field_find *find, const void *request,
                               struct error *err) SLUICE_MUST_USE;

#endif
