/* What would be picked for a described request, and why: each endpoint with every rule's verdict,
 * as a text for people. Nothing is picked and nothing counted.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_SESSION_EXPLAIN_H
#define SLUICE_PICK_SESSION_EXPLAIN_H

#include "core/base/buf.h"
#include "pick/pool/set.h"

/* A request as a person describes it; ptr NULL: not given. */
struct pick_described_request {
    struct str method, path;
    struct str model;     /* as if the body named it */
    struct str objective; /* by name */
    struct str subset;    /* the hint, with commas; "" is an empty one */
    struct str selection; /* as the header of the conformance tests */
    struct str prompt;    /* how it begins, for a profile that looks at it */
    struct str session;   /* the value that a header or a cookie has for it */
    /* Which pool it is for, where there are several: by name, or by what its match looks at. */
    struct str pool;
    struct str authority;
    struct str header;   /* "name: value"; for profiles, too */
    struct str metadata; /* "namespace/key=value" */
};

/* Appends the text. Returns: ST_NO_MEMORY, or what the request is refused with (the text says so
 * too). */
enum status pick_explain(struct pool_reader *reader, const struct pick_described_request *described,
                         struct buf *out, struct error *err) __attribute__((warn_unused_result));

/* The same, and first which pool the request would be for and why. */
enum status pick_explain_pools(struct pool_set_reader *pools,
                               const struct pick_described_request *described, struct buf *out,
                               struct error *err) __attribute__((warn_unused_result));

#endif
