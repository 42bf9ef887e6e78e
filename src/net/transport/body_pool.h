/* The memory of large bodies: blocks of whole pages, cached for some seconds after use, because the
 * page faults of fresh pages cost as much as copying the body. The cache is bounded.
 *
 * Thread: one worker's. */
#ifndef SLUICE_NET_TRANSPORT_BODY_POOL_H
#define SLUICE_NET_TRANSPORT_BODY_POOL_H

#include <stddef.h>
#include <stdint.h>

enum { BODY_POOL_SLOTS = 64 };

struct body_pool {
    size_t max_bytes; /* limit of the cached blocks together; until body_pool_trim half more */
    size_t n_bytes;   /* of the cached blocks */
    size_t n;
    struct body_block {
        void *ptr;
        size_t n_bytes;
        uint64_t since_ns;
    } blocks[BODY_POOL_SLOTS];
};

void body_pool_init(struct body_pool *pool, size_t max_bytes);
/* Frees all cached blocks. */
void body_pool_fini(struct body_pool *pool);
/* Allocates at least `n_bytes`, 64-byte aligned; *got is the real size. Returns: NULL when out of
 * memory. Owns: the caller, until body_pool_free. */
void *body_pool_alloc(struct body_pool *pool, size_t n_bytes, size_t *got);
/* Grows a block, keeping its bytes; it may move. Returns: NULL when out of memory, block
 * unchanged. */
void *body_pool_grow(struct body_pool *pool, void *ptr, size_t n_bytes, size_t wanted, size_t *got);
/* Takes a block back; the caller then calls body_pool_trim. */
void body_pool_free(struct body_pool *pool, void *ptr, size_t n_bytes, uint64_t now_ns);
/* Frees blocks that were not used for some seconds, or exceed the limit: a part of them in each
 * call, as returning a large block takes milliseconds. Returns: when to call it next; UINT64_MAX:
 * nothing is cached. */
uint64_t body_pool_trim(struct body_pool *pool, uint64_t now_ns);

#endif
