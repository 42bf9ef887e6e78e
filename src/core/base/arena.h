/* The memory of one request: allocations are bumps in chunks, freeing is one call for all of them.
 * It knows its own size and refuses past a limit with NULL, never with a crash. It is not a heap:
 * nothing is freed one by one (except the newest block, which may grow or shrink in place).
 *
 * With SLUICE_ARENA_EMULATE defined each allocation is a malloc of its own, so that the address
 * sanitizer sees an overrun by one byte.
 *
 * Thread: an arena belongs to whoever holds its request; it has no lock. */
#ifndef SLUICE_CORE_BASE_ARENA_H
#define SLUICE_CORE_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

struct arena;

/* A small cache of standard chunks that arenas of one thread take from and give back to, so that a
 * request costs no malloc. Bounded; NULL is allowed wherever a cache is taken. */
struct arena_cache;
struct arena_cache *arena_cache_new(size_t max_chunks);
void arena_cache_free(struct arena_cache *cache);
/* From now on it keeps large blocks too, all of them until it is freed: one request after the other
 * of the same sizes then costs no malloc at all. For one who makes such requests, as a client does;
 * who serves many gives memory back. */
void arena_cache_keep_large(struct arena_cache *cache);

/* Makes an arena whose total (chunks of 4 KiB and large blocks) may not exceed `limit_bytes` (0: no
 * limit; the first chunk is always granted).
 * The arena itself lives in its first chunk. Returns: NULL when memory is out.
 * Thread: `cache` must be the calling thread's; arena_free must then be called on that same
 * thread. */
struct arena *arena_new(struct arena_cache *cache, size_t limit_bytes);
/* Frees everything. NULL is allowed. */
void arena_free(struct arena *arena);

/* `n_bytes` aligned to max_align_t (16), uninitialised; a size of 0 gives a valid pointer.
 * Returns: NULL past the limit or when memory is out. */
void *arena_alloc(struct arena *arena, size_t n_bytes) __attribute__((malloc, alloc_size(2)));
void *arena_alloc_aligned(struct arena *arena, size_t n_bytes, size_t alignment);
/* n x size, zeroed, overflow checked. */
void *arena_calloc(struct arena *arena, size_t n, size_t size);
/* Grows or shrinks a block made by this arena: in place where it is the newest or large, else
 * copied. `old_bytes` is what was asked for. NULL `ptr` allocates. The result is aligned to 16
 * bytes, whatever `ptr` was. On failure NULL, block unchanged. */
void *arena_realloc(struct arena *arena, void *ptr, size_t old_bytes, size_t new_bytes);
/* A copy of the bytes with a NUL behind them. Returns: ptr NULL when out of memory. */
struct str arena_dup(struct arena *arena, struct str text);
/* Like printf. Returns: ptr NULL when out of memory. */
struct str arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Bytes taken from the system on behalf of this arena, now. */
size_t arena_bytes(const struct arena *arena);

#endif
