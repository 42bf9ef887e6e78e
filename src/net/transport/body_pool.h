/* The memory of large bodies: blocks of whole pages, kept for a while after use, because the page
 * faults of fresh pages cost as much as a copy of the body. Bounded; what nobody wants for some
 * seconds goes back to the system.
 *
 * Thread: one worker's. */
#ifndef SLUICE_NET_TRANSPORT_BODY_POOL_H
#define SLUICE_NET_TRANSPORT_BODY_POOL_H

#include <stddef.h>
#include <stdint.h>

enum { BODY_POOL_SLOTS = 64 };

struct body_pool {
    size_t max_bytes; /* kept at most */
    size_t n_bytes;   /* kept now */
    size_t n;
    struct body_block {
        void *ptr;
        size_t n_bytes;
        uint64_t since_ns;
    } blocks[BODY_POOL_SLOTS];
};

void body_pool_init(struct body_pool *pool, size_t max_bytes);
/* Gives everything that is kept back to the system. */
void body_pool_fini(struct body_pool *pool);
/* At least `n_bytes`, aligned to 64; *got is the real size. Returns: NULL when out of memory.
 * Owns: the caller, until body_pool_free. */
void *body_pool_alloc(struct body_pool *pool, size_t n_bytes, size_t *got);
/* Makes a block larger; its bytes stay, it may move. Returns: NULL when out of memory, block
 * unchanged. */
void *body_pool_grow(struct body_pool *pool, void *ptr, size_t n_bytes, size_t wanted, size_t *got);
void body_pool_free(struct body_pool *pool, void *ptr, size_t n_bytes, uint64_t now_ns);
/* Lets go of what has waited too long. Returns: when to come again; UINT64_MAX: nothing is kept. */
uint64_t body_pool_trim(struct body_pool *pool, uint64_t now_ns);

#endif
