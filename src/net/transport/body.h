/* One request body on its way into memory: the right size at once where the head gives it, growing
 * where it does not, decompressed where it is compressed, and accounted by what has really come.
 * Sans I/O: bytes are added, or read by the caller straight into place.
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

/* What a body is made with; lives longer than it. */
struct body_allocator {
    struct arena *arena; /* for a small body */
    struct body_pool *pool;
    struct net_budget *budget;
};

struct body {
    struct body_allocator allocator;
    char *data; /* aligned so that data + align_at is a multiple of 64 */
    size_t len;
    size_t cap;        /* room at data */
    size_t n_reserved; /* bytes that may be used: those free for all, and what the budget gave */
    size_t max_bytes;
    size_t align_at;
    uint64_t length; /* as the head says; UINT64_MAX: it does not say */
    uint64_t left;   /* of that, still to come */
    bool in_place;   /* bytes may be read straight into it */
    void *block;     /* of the pool, or NULL */
    size_t block_bytes;
    struct inflate *inflate; /* NULL: not compressed */
};

struct body_plan {
    uint64_t length; /* by the head; UINT64_MAX: it does not say */
    uint64_t max_bytes;
    size_t align_at;
    enum http_coding coding;
};

/* Would a body of so many bytes fit the budget now? Takes nothing. Returns: ST_OVERLOADED. */
enum status body_check_budget(const struct net_budget *budget, uint64_t n_bytes, struct error *err)
    __attribute__((warn_unused_result));
/* Prepares for a body. Returns: ST_BODY_TOO_LARGE when the head says so already, ST_OVERLOADED,
 * ST_NO_MEMORY. Owns: body_fini, also after an error. */
enum status body_init(struct body *body, const struct body_allocator *allocator,
                      const struct body_plan *plan, struct error *err)
    __attribute__((warn_unused_result));
/* Takes bytes of the body as they came, copying or decompressing them. At most `left`. Returns:
 * also ST_BAD_ENCODING. */
enum status body_add(struct body *body, struct str data, struct error *err)
    __attribute__((warn_unused_result));
/* Where the next bytes may be read to, when in_place: never more than the body still has. */
char *body_read_buffer(struct body *body, size_t *n_bytes);
/* So many were read there. */
enum status body_advance(struct body *body, size_t n_bytes, struct error *err)
    __attribute__((warn_unused_result));
/* A chunk of so many bytes is coming: would they still fit the limit? */
enum status body_check_size(const struct body *body, uint64_t n_bytes, struct error *err)
    __attribute__((warn_unused_result));
/* All bytes have come. Returns: ST_BAD_ENCODING when the compressed text is cut off. */
enum status body_finish(struct body *body, struct error *err) __attribute__((warn_unused_result));
/* Gives everything back; zeroed memory is allowed. */
void body_fini(struct body *body, uint64_t now_ns);

#endif
