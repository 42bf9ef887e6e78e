/* Large blocks from mmap, reused. With SLUICE_ARENA_EMULATE each is a malloc of exactly the
 * requested size, so that the address sanitizer finds an overrun by one byte.
 *
 * Blocks grow with mremap, which moves pages without copying and keeps their alignment. */
#include "net/transport/body_pool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const uint64_t KEEP_NS = 5000000000u;
static const size_t LARGEST_BYTES = (size_t)1 << 40;

enum {
    PAGE_BYTES = 4096,
    SMALLEST_BYTES = 65536,
    TRIM_BYTES = 4 << 20 /* unmapped in one go, which takes some 0.3 ms */
};

/* The thread sanitizer does not track mremap, and would report a race with the next owner of the
 * address. */
#if defined(__SANITIZE_THREAD__)
#define BODY_POOL_COPIES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BODY_POOL_COPIES 1
#endif
#endif

#ifdef SLUICE_ARENA_EMULATE

static void *pages_alloc(size_t n_bytes) {
    void *ptr = NULL;
    return posix_memalign(&ptr, 64, n_bytes) == 0 ? ptr : NULL;
}
static void pages_free(void *ptr, size_t n_bytes) {
    (void)n_bytes;
    free(ptr);
}
/* Returns: how many bytes are left of a block of which up to `most` are to be freed. */
static size_t pages_shrink(void *ptr, size_t n_bytes, size_t most) {
    (void)most;
    pages_free(ptr, n_bytes);
    return 0;
}
static size_t size_class(size_t n_bytes) {
    return n_bytes <= LARGEST_BYTES ? n_bytes : 0;
}

#else

static void *pages_alloc(size_t n_bytes) {
    void *ptr = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return ptr != MAP_FAILED ? ptr : NULL;
}
static void pages_free(void *ptr, size_t n_bytes) {
    munmap(ptr, n_bytes);
}
/* Returns: how many bytes are left of a block of which up to `most`, in whole pages, are to be
 * freed. */
static size_t pages_shrink(void *ptr, size_t n_bytes, size_t most) {
    size_t left = n_bytes > most ? (n_bytes - most) / PAGE_BYTES * PAGE_BYTES : 0;
    pages_free((char *)ptr + left, n_bytes - left);
    return left;
}
/* Rounds up by at most an eighth, so that bodies of similar size share blocks. Returns: 0 when
 * there is no such size. */
static size_t size_class(size_t n_bytes) {
    size_t step = PAGE_BYTES;
    if (n_bytes <= SMALLEST_BYTES) {
        return SMALLEST_BYTES;
    }
    if (n_bytes > LARGEST_BYTES) {
        return 0;
    }
    while (step < n_bytes / 16) {
        step *= 2;
    }
    return (n_bytes + step - 1) / step * step;
}

#endif

static void *pages_grow(void *ptr, size_t n_bytes, size_t wanted) {
#if defined(SLUICE_ARENA_EMULATE) || defined(BODY_POOL_COPIES)
    void *fresh = pages_alloc(wanted);
    if (fresh) {
        memcpy(fresh, ptr, n_bytes);
        pages_free(ptr, n_bytes);
    }
    return fresh;
#else
    void *fresh = mremap(ptr, n_bytes, wanted, MREMAP_MAYMOVE);
    return fresh != MAP_FAILED ? fresh : NULL;
#endif
}

void body_pool_init(struct body_pool *pool, size_t max_bytes) {
    *pool = (struct body_pool){.max_bytes = max_bytes};
}

/* Removes a block from the pool; the others stay ordered, oldest first. */
static struct body_block block_remove(struct body_pool *pool, size_t i) {
    struct body_block block = pool->blocks[i];
    pool->n--;
    pool->n_bytes -= block.n_bytes;
    memmove(&pool->blocks[i], &pool->blocks[i + 1], (pool->n - i) * sizeof(block));
    return block;
}

static void oldest_free(struct body_pool *pool) {
    struct body_block block = block_remove(pool, 0);
    pages_free(block.ptr, block.n_bytes);
}

/* Frees up to `most` bytes of the oldest block, in whole pages. Returns: how many. */
static size_t oldest_shrink(struct body_pool *pool, size_t most) {
    struct body_block *block = &pool->blocks[0];
    size_t before = block->n_bytes, left = pages_shrink(block->ptr, before, most);
    pool->n_bytes -= before - left;
    block->n_bytes = left;
    if (left == 0) {
        block_remove(pool, 0);
    }
    return before - left;
}

void body_pool_fini(struct body_pool *pool) {
    while (pool->n > 0) {
        oldest_free(pool);
    }
}

void *body_pool_alloc(struct body_pool *pool, size_t n_bytes, size_t *got) {
    size_t best = SIZE_MAX;
    for (size_t i = pool->n; i-- > 0;) { /* the newest of equals is the warmest in the cache */
        size_t size = pool->blocks[i].n_bytes;
        /* A far larger block is kept for a far larger body. */
        if (size >= n_bytes && size / 4 <= n_bytes &&
            (best == SIZE_MAX || size < pool->blocks[best].n_bytes)) {
            best = i;
        }
    }
    if (best != SIZE_MAX) {
        struct body_block block = block_remove(pool, best);
        *got = block.n_bytes;
        return block.ptr;
    }
    *got = size_class(n_bytes);
    return *got > 0 ? pages_alloc(*got) : NULL;
}

void *body_pool_grow(struct body_pool *pool, void *ptr, size_t n_bytes, size_t wanted,
                     size_t *got) {
    (void)pool;
    size_t size = size_class(wanted);
    void *fresh = size > 0 ? pages_grow(ptr, n_bytes, size) : NULL;
    *got = fresh ? size : n_bytes;
    return fresh;
}

void body_pool_free(struct body_pool *pool, void *ptr, size_t n_bytes, uint64_t now_ns) {
    if (pool->n == BODY_POOL_SLOTS) {
        oldest_free(pool);
    }
    struct body_block block = {ptr, n_bytes, now_ns};
    if (n_bytes > pool->max_bytes) { /* the first to go */
        block.since_ns = 0;
        memmove(&pool->blocks[1], &pool->blocks[0], pool->n * sizeof(block));
        pool->blocks[0] = block;
    } else {
        pool->blocks[pool->n] = block;
    }
    pool->n++;
    pool->n_bytes += n_bytes;
    size_t hard_limit = pool->max_bytes + pool->max_bytes / 2;
    while (pool->n_bytes > hard_limit) { /* they come faster than body_pool_trim frees them */
        oldest_shrink(pool, pool->n_bytes - hard_limit);
    }
}

static bool trim_is_due(const struct body_pool *pool, uint64_t now_ns) {
    return pool->n > 0 &&
           (pool->n_bytes > pool->max_bytes || pool->blocks[0].since_ns + KEEP_NS <= now_ns);
}

uint64_t body_pool_trim(struct body_pool *pool, uint64_t now_ns) {
    size_t freed = 0;
    while (freed < TRIM_BYTES && trim_is_due(pool, now_ns)) {
        freed += oldest_shrink(pool, TRIM_BYTES - freed);
    }
    return trim_is_due(pool, now_ns) ? now_ns
           : pool->n > 0             ? pool->blocks[0].since_ns + KEEP_NS
                                     : UINT64_MAX;
}
