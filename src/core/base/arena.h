/* The memory of one request: an allocation takes the next bytes of a chunk, and one call frees all
 * of them. The arena limits its own size: an allocation past the limit returns NULL. Single blocks
 * are not freed; the newest one may grow or shrink in place.
 *
 * With SLUICE_ARENA_EMULATE defined each allocation is a malloc of its own, so that the address
 * sanitizer sees an overrun by one byte.
 *
 * Thread: that of the request that owns the arena; there is no lock. */
#ifndef SLUICE_CORE_BASE_ARENA_H
#define SLUICE_CORE_BASE_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

struct arena;

/* A small cache of standard chunks for the arenas of one thread, so that a request costs no malloc.
 * It is bounded. Functions that take a cache accept NULL. */
struct arena_cache;
/* Returns: NULL when out of memory. Owns: the caller, until arena_cache_free. */
struct arena_cache *arena_cache_new(size_t max_chunks);
void arena_cache_free(struct arena_cache *cache);
/* Frees the chunks that no arena uses. */
void arena_cache_trim(struct arena_cache *cache);
/* The cache keeps large blocks too, all of them until it is freed: requests of the same sizes one
 * after the other cost no malloc then. For clients; a server gives memory back instead. */
void arena_cache_keep_large(struct arena_cache *cache);

/* Makes an arena whose total (chunks of 4 KiB and large blocks) may not exceed `limit_bytes` (0: no
 * limit; the first chunk is always granted). The arena itself is in its first chunk. Returns: NULL
 * when out of memory. Thread: `cache` must be the calling thread's; arena_free must be called on
 * the same thread. */
struct arena *arena_new(struct arena_cache *cache, size_t limit_bytes);
/* Makes an arena without a cache, for what an owner of `arena` allocates on another thread. Its
 * limit is what the limit of `arena` leaves. */
struct arena *arena_new_beside(const struct arena *arena);
/* Frees everything. NULL is allowed. */
void arena_free(struct arena *arena);

/* Memory that several arenas share, such as what all clients may make a server hold. */
struct arena_budget {
    /* `n_counted`: what the arena has taken before. Returns: false when they don't fit. */
    bool (*take)(void *user, size_t n_bytes, size_t n_counted);
    void (*give)(void *user, size_t n_bytes);
    void *user;
    /* Of each arena, that don't count: the owner counts what a small request takes, a fixed part
     * for each. Less would refuse the requests of clients with few where others use up the
     * budget. */
    size_t n_uncounted;
};
/* What the arena takes beyond the budget's n_uncounted counts against `budget`, which must outlive
 * it: an allocation that does not fit returns NULL. */
void arena_set_budget(struct arena *arena, const struct arena_budget *budget);
/* Gives back what was taken from the budget: from now on the arena is counted elsewhere. */
void arena_stop_counting(struct arena *arena);
/* Returns: whether the budget has refused memory to this arena. */
bool arena_is_over_budget(const struct arena *arena);

/* Work in the arena, on another thread, stops soon after *cancelled is set: the arena grows no
 * more, and long loops look at arena_is_cancelled. What they return then is not used. `cancelled`
 * must outlive the arena. */
void arena_set_cancelled(struct arena *arena, const atomic_bool *cancelled);
/* NULL is allowed. */
bool arena_is_cancelled(const struct arena *arena);

/* An allocation that fails calls `end` with `what`, a noun phrase; `end` does not return. For
 * must_arena_new (core/must/must.h). */
typedef void arena_end_fn(const char *what);
void arena_set_end(struct arena *arena, arena_end_fn *end, const char *what);

/* `n_bytes` aligned to max_align_t (16), uninitialised; a size of 0 gives a valid pointer. Returns:
 * NULL past the limit or when out of memory. */
void *arena_alloc(struct arena *arena, size_t n_bytes) __attribute__((malloc, alloc_size(2)));
/* The same for another alignment, a power of two. */
void *arena_alloc_aligned(struct arena *arena, size_t n_bytes, size_t alignment);
/* n x size, overflow checked; arena_calloc zeroes them. */
void *arena_alloc_array(struct arena *arena, size_t n, size_t size);
void *arena_calloc(struct arena *arena, size_t n, size_t size);
/* Grows or shrinks a block of this arena: in place where it is the newest or large, else copied.
 * `old_bytes` is its requested size. A NULL `ptr` allocates. The result is aligned to 16 bytes,
 * whatever `ptr` was. Returns: NULL on failure; the block is unchanged then. */
void *arena_realloc(struct arena *arena, void *ptr, size_t old_bytes, size_t new_bytes);
/* A copy of the bytes, followed by a NUL. Returns: ptr NULL when out of memory. */
struct str arena_dup(struct arena *arena, struct str text);
/* Like printf. Returns: ptr NULL when out of memory. */
struct str arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns: the bytes that this arena holds now, from the cache or the system. */
size_t arena_bytes(const struct arena *arena);

#endif
