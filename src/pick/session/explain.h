/* Explains a pick: which endpoint a described request would get and why, with each rule's result
 * for each endpoint, as a text. Nothing is picked and nothing counted.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_SESSION_EXPLAIN_H
#define SLUICE_PICK_SESSION_EXPLAIN_H

#include "core/base/buf.h"
#include "pick/pool/set.h"

/* ptr NULL: not given. */
struct pick_described_request {
    struct str method, path;
    struct str model;     /* as named by the body */
    struct str objective; /* name of the objective */
    struct str subset;    /* the hint, separated by commas; "": an empty list */
    struct str selection; /* the header of the conformance tests */
    struct str prompt;    /* its beginning, for prefix plugins */
    struct str session;   /* the value of the session header or cookie */
    /* Selects the pool, where there are several: by name, or by what its match reads. */
    struct str pool;
    struct str authority;
    struct str header;   /* "name: value"; also for profiles */
    struct str metadata; /* "namespace/key=value" */
};

/* Appends the text. Returns: ST_NO_MEMORY, or the status of the refusal, which the text has too. */
enum status pick_explain(struct pool_reader *reader, const struct pick_described_request *described,
                         struct buf *out, struct error *err) SLUICE_MUST_USE;

/* The same, preceded by the pool that matches the request and why. */
enum status pick_explain_pools(struct pool_set_reader *pools,
                               const struct pick_described_request *described, struct buf *out,
                               struct error *err) SLUICE_MUST_USE;

#endif
