/* One request body in memory: allocated at its final size if the head has the length, growing
 * otherwise, decompressed as it arrives, and accounted by the bytes received. Sans I/O: bytes are
 * added, or read by the caller straight into the body.
 *
 * Back pressure: none of its own; when the budget is exhausted the body fails with ST_OVERLOADED
 * instead of waiting.
 *
 * Thread: the worker of its connection. */
#ifndef SLUICE_NET_TRANSPORT_BODY_H
#define SLUICE_NET_TRANSPORT_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/http1/content_coding.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "net/transport/body_pool.h"
#include "net/transport/budget.h"

/* Where a body's memory comes from; outlives the body. */
struct body_allocator {
    struct arena *arena; /* for a small body */
    struct body_pool *pool;
    struct net_budget *budget;
    enum net_body_owner owner;
};

struct body {
    struct body_allocator allocator;
    char *data; /* aligned so that data + align_at is a multiple of 64 */
    size_t len;
    size_t cap;        /* allocated bytes at data */
    size_t n_reserved; /* usable bytes: the unaccounted ones and the reserved budget */
    size_t max_bytes;
    const char *setting; /* of max_bytes, for errors */
    size_t align_at;
    uint64_t length; /* from the head; UINT64_MAX: unknown */
    uint64_t left;   /* bytes still to be received */
    bool in_place;   /* bytes may be read straight into it */
    void *block;     /* from the pool, or NULL */
    size_t block_bytes;
    struct inflate *inflate; /* NULL: not compressed */
};

struct body_plan {
    uint64_t length;     /* from the head; UINT64_MAX: unknown */
    uint64_t max_bytes;  /* of the body, decompressed: a compressed one fails when it grows past
                            it */
    const char *setting; /* of max_bytes, for errors; NULL: "--max-body-size" */
    size_t align_at;
    enum http_coding coding;
};

/* Checks whether a body of that size fits the budget now; reserves nothing. Returns:
 * ST_OVERLOADED. */
enum status body_check_budget(const struct net_budget *budget, uint64_t n_bytes,
                              struct error *err) SLUICE_MUST_USE;
/* Prepares for a body. Returns: ST_BODY_TOO_LARGE if the head's length exceeds the limit,
 * ST_OVERLOADED, ST_NO_MEMORY. Owns: body_fini, also after an error. */
enum status body_init(struct body *body, const struct body_allocator *allocator,
                      const struct body_plan *plan, struct error *err) SLUICE_MUST_USE;
/* Adds received bytes, at most `left`, copying or decompressing them, unless they are where
 * body_read_buffer said. Returns: as body_init, ST_BAD_ENCODING. */
enum status body_add(struct body *body, struct str data, struct error *err) SLUICE_MUST_USE;
/* Returns: where the next bytes may be read to, when in_place and bytes are left; at least one, and
 * never more than the body still needs. */
char *body_read_buffer(struct body *body, size_t *n_bytes);
/* Bytes were read there. */
enum status body_advance(struct body *body, size_t n_bytes, struct error *err) SLUICE_MUST_USE;
/* Checks whether a chunk of that size fits the limit. Returns: ST_BODY_TOO_LARGE. */
enum status body_check_size(const struct body *body, uint64_t n_bytes,
                            struct error *err) SLUICE_MUST_USE;
/* All bytes were received. Returns: ST_BAD_ENCODING when the compressed data is truncated. */
enum status body_finish(struct body *body, struct error *err) SLUICE_MUST_USE;
/* Returns: bytes of the budget that it has reserved. */
uint64_t body_reserved_bytes(const struct body *body);
/* Frees memory and budget; zeroed memory is allowed. */
void body_fini(struct body *body, uint64_t now_ns);

#endif
