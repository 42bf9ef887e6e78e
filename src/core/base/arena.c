/* Small blocks are bumps in chunks of 4 KiB, which come from the thread's cache and go back to it.
 * A large block is a malloc of its own: a growing body can then use realloc, which moves pages
 * instead of bytes, and the memory returns to the system at once. */
#include "core/base/arena.h"

#include <assert.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"

enum {
    ARENA_ALIGN = 16,
    ARENA_CHUNK_BYTES = 4096,
#ifdef SLUICE_ARENA_EMULATE
    ARENA_LARGE_BYTES = 0, /* each block is a malloc of its own */
#else
    ARENA_LARGE_BYTES = 2048,
#endif
};

struct chunk {
    struct chunk *next;
};

struct arena_cache {
    struct chunk *free_chunks;
    size_t n_free;
    size_t max;
    bool keep_large; /* keeps large blocks too */
    LIST_HEAD(, large) free_larges;
};

/* The header in front of a large block's bytes. */
struct large {
    alignas(ARENA_ALIGN) LIST_ENTRY(large) link; /* in the arena, or in the cache */
    void *raw;      /* returned by malloc: this header, or padding before it */
    size_t n_bytes; /* taken from malloc */
};

struct arena {
    char *at;   /* the next free byte of the newest chunk */
    char *end;  /* the end of that chunk */
    char *last; /* the newest small block */
    struct chunk *chunks;
    LIST_HEAD(, large) larges;
    struct arena_cache *cache;
    size_t limit;
    size_t total;
    const struct arena_budget *budget; /* NULL: none */
    size_t n_counted;                  /* taken from the budget */
    bool is_over_budget;               /* the budget refused memory */
    const atomic_bool *cancelled;      /* NULL: never */
    arena_end_fn *end_process;         /* NULL: allocations return NULL when out of memory */
    const char *what;                  /* its argument */
};

enum { ARENA_CHUNK_HEAD = (sizeof(struct chunk) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN };

static_assert(alignof(max_align_t) <= ARENA_ALIGN, "the arena's alignment suits every type");
static_assert(sizeof(struct large) % ARENA_ALIGN == 0, "a large block's bytes are aligned");

/* The next block starts aligned; a chunk's end is, so this stays inside. */
static size_t round_up(size_t n_bytes) {
    return size_round_up(n_bytes, ARENA_ALIGN);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

struct arena_cache *arena_cache_new(size_t max_chunks) {
    struct arena_cache *cache = malloc(sizeof(*cache));
    if (cache) {
        *cache = (struct arena_cache){.max = max_chunks};
    }
    return cache;
}

void arena_cache_trim(struct arena_cache *cache) {
    while (cache->free_chunks) {
        struct chunk *chunk = cache->free_chunks;
        cache->free_chunks = chunk->next;
        free(chunk);
    }
    cache->n_free = 0;
}

void arena_cache_free(struct arena_cache *cache) {
    if (!cache) {
        return;
    }
    arena_cache_trim(cache);
    struct large *large;
    while ((large = LIST_FIRST(&cache->free_larges))) {
        LIST_REMOVE(large, link);
        free(large);
    }
    free(cache);
}

void arena_cache_keep_large(struct arena_cache *cache) {
#ifndef SLUICE_ARENA_EMULATE
    cache->keep_large = true;
#else
    (void)cache; /* a reused block would be larger than requested */
#endif
}

static struct chunk *chunk_new(struct arena_cache *cache) {
    if (cache && cache->free_chunks) {
        struct chunk *chunk = cache->free_chunks;
        cache->free_chunks = chunk->next;
        cache->n_free--;
        return chunk;
    }
    return malloc(ARENA_CHUNK_BYTES);
}

static void chunk_free(struct arena_cache *cache, struct chunk *chunk) {
    if (cache && cache->n_free < cache->max) {
        chunk->next = cache->free_chunks;
        cache->free_chunks = chunk;
        cache->n_free++;
    } else {
        free(chunk);
    }
}

/* ---- cached large blocks --------------------------------------------------------------------- */

/* The smallest cached block of at least `n_bytes`. Returns: its header; NULL when there is none. */
static struct large *large_cache_pop(struct arena_cache *cache, size_t n_bytes) {
    struct large *best = NULL;
    for (struct large *at = cache ? LIST_FIRST(&cache->free_larges) : NULL; at;
         at = LIST_NEXT(at, link)) {
        if (at->n_bytes >= n_bytes && (!best || at->n_bytes < best->n_bytes)) {
            best = at;
        }
    }
    if (best) {
        LIST_REMOVE(best, link);
    }
    return best;
}

static void large_free(struct arena_cache *cache, struct large *large) {
    if (!cache || !cache->keep_large) {
        free(large->raw);
        return;
    }
    size_t n_bytes = large->n_bytes;
    struct large *free_large = large->raw;
    *free_large = (struct large){.raw = free_large, .n_bytes = n_bytes};
    LIST_INSERT_HEAD(&cache->free_larges, free_large, link);
}

/* ---- the arena ------------------------------------------------------------------------------- */

struct arena *arena_new(struct arena_cache *cache, size_t limit_bytes) {
    struct chunk *chunk = chunk_new(cache);
    if (!chunk) {
        return NULL;
    }
    chunk->next = NULL;
    struct arena *arena = (struct arena *)(void *)((char *)chunk + ARENA_CHUNK_HEAD);
    size_t used = ARENA_CHUNK_HEAD + round_up(sizeof(*arena));
    *arena = (struct arena){
        .at = (char *)chunk + used,
        .end = (char *)chunk + ARENA_CHUNK_BYTES,
        .chunks = chunk,
        .cache = cache,
        .limit = limit_bytes > 0 ? limit_bytes : SIZE_MAX,
        .total = ARENA_CHUNK_BYTES,
    };
    metric_add(METRIC_ARENAS, 1);
    return arena;
}

struct arena *arena_new_beside(const struct arena *arena) {
    size_t limit = arena->limit > arena->total ? arena->limit - arena->total : 1;
    struct arena *beside = arena_new(NULL, limit);
    if (beside) {
        beside->budget = arena->budget;
    }
    return beside;
}

void arena_free(struct arena *arena) {
    if (!arena) {
        return;
    }
    arena_stop_counting(arena);
    struct large *large;
    while ((large = LIST_FIRST(&arena->larges))) {
        LIST_REMOVE(large, link);
        large_free(arena->cache, large);
    }
    /* The arena lives in the oldest chunk, the last of the list. */
    struct arena_cache *cache = arena->cache;
    struct chunk *chunk = arena->chunks;
    while (chunk) {
        struct chunk *next = chunk->next;
        chunk_free(cache, chunk);
        chunk = next;
    }
    metric_add(METRIC_ARENAS, -1);
}

size_t arena_bytes(const struct arena *arena) {
    return arena->total;
}

void arena_set_end(struct arena *arena, arena_end_fn *end, const char *what) {
    arena->end_process = end;
    arena->what = what;
}

/* The result of an allocation that failed. */
static void *out_of_memory(const struct arena *arena) {
    if (arena->end_process) {
        arena->end_process(arena->what);
    }
    return NULL;
}

/* ---- the budget ------------------------------------------------------------------------------ */

void arena_set_budget(struct arena *arena, const struct arena_budget *budget) {
    assert(arena->n_counted == 0);
    arena->budget = budget;
}

void arena_stop_counting(struct arena *arena) {
    if (arena->n_counted > 0) {
        arena->budget->give(arena->budget->user, arena->n_counted);
        arena->n_counted = 0;
    }
    arena->budget = NULL;
}

/* The budget is asked for memory in steps that grow with the arena up to this size. */
enum { COUNTED_STEP_BYTES = 65536 };

/* Takes from the budget what the arena lacks to grow to `total`. */
static bool count_bytes(struct arena *arena, size_t total) {
    if (!arena->budget || !arena->budget->take) {
        return true;
    }
    size_t counted = arena->budget->n_uncounted + arena->n_counted;
    if (total <= counted) {
        return true;
    }
    size_t step = total - counted;
    size_t usual = arena->total < COUNTED_STEP_BYTES ? arena->total : COUNTED_STEP_BYTES;
    if (step < usual && arena->budget->take(arena->budget->user, usual, arena->n_counted)) {
        arena->n_counted += usual;
        return true;
    }
    arena->is_over_budget = !arena->budget->take(arena->budget->user, step, arena->n_counted);
    arena->n_counted += arena->is_over_budget ? 0 : step;
    return !arena->is_over_budget;
}

bool arena_is_over_budget(const struct arena *arena) {
    return arena->is_over_budget;
}

/* Gives back what the arena no longer has, after a large block was freed or became smaller. */
static void uncount_bytes(struct arena *arena) {
    if (arena->n_counted == 0) {
        return;
    }
    size_t uncounted = arena->budget->n_uncounted;
    size_t needed = arena->total > uncounted ? arena->total - uncounted : 0;
    if (arena->n_counted >= needed + COUNTED_STEP_BYTES) {
        arena->budget->give(arena->budget->user, arena->n_counted - needed);
        arena->n_counted = needed;
    }
}

void arena_set_cancelled(struct arena *arena, const atomic_bool *cancelled) {
    arena->cancelled = cancelled;
}

bool arena_is_cancelled(const struct arena *arena) {
    return arena && arena->cancelled &&
           atomic_load_explicit(arena->cancelled, memory_order_relaxed);
}

/* Do the limit and the budget allow to take `n_bytes` more from the system? */
static bool may_grow(struct arena *arena, size_t n_bytes) {
    return !arena_is_cancelled(arena) && arena->total <= arena->limit &&
           n_bytes <= arena->limit - arena->total && count_bytes(arena, arena->total + n_bytes);
}

static bool chunk_add(struct arena *arena) {
    struct chunk *chunk = may_grow(arena, ARENA_CHUNK_BYTES) ? chunk_new(arena->cache) : NULL;
    if (!chunk) {
        return false;
    }
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = (char *)chunk + ARENA_CHUNK_HEAD;
    arena->end = (char *)chunk + ARENA_CHUNK_BYTES;
    arena->total += ARENA_CHUNK_BYTES;
    return true;
}

/* ---- large blocks ---------------------------------------------------------------------------- */

static struct large *large_of(void *ptr) {
    return (struct large *)ptr - 1;
}

static void large_link(struct arena *arena, struct large *large) {
    LIST_INSERT_HEAD(&arena->larges, large, link);
    arena->total += large->n_bytes;
}

static void large_unlink(struct arena *arena, struct large *large) {
    LIST_REMOVE(large, link);
    arena->total -= large->n_bytes;
}

static void *large_alloc(struct arena *arena, size_t n_bytes, size_t alignment) {
    size_t padding = alignment - ARENA_ALIGN; /* malloc aligns to ARENA_ALIGN already */
    size_t total;
    if (!checked_add(n_bytes, sizeof(struct large) + padding, &total) || !may_grow(arena, total)) {
        return NULL;
    }
    struct large *free_large = large_cache_pop(arena->cache, total);
    total = free_large ? free_large->n_bytes : total;
    char *raw = free_large ? (char *)free_large : malloc(total);
    if (!raw) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)raw + sizeof(struct large);
    char *bytes = raw + sizeof(struct large) + ((0 - first) & (alignment - 1));
    struct large *large = large_of(bytes);
    large->raw = raw;
    large->n_bytes = total;
    large_link(arena, large);
    return bytes;
}

/* Moves the bytes of `large` to a cached block of at least `total` bytes; the block of `large` is
 * cached in its place. Returns: NULL when no cached block is large enough. */
static void *large_move(struct arena *arena, struct large *large, size_t total) {
    struct large *moved = large_cache_pop(arena->cache, total);
    if (!moved) {
        return NULL;
    }
    moved->raw = moved;
    memcpy(moved + 1, large + 1, large->n_bytes - sizeof(*large));
    large_unlink(arena, large);
    large_free(arena->cache, large);
    large_link(arena, moved);
    return moved + 1;
}

static void *large_realloc(struct arena *arena, void *ptr, size_t new_bytes) {
    struct large *large = large_of(ptr);
    size_t total;
    if (!checked_add(new_bytes, sizeof(struct large), &total) ||
        (total > large->n_bytes && !may_grow(arena, total - large->n_bytes))) {
        return NULL;
    }
    if (arena->cache && arena->cache->keep_large) {
        void *moved = total <= large->n_bytes ? ptr : large_move(arena, large, total);
        if (moved) {
            return moved;
        }
    }
    large_unlink(arena, large);
    struct large *grown = realloc(large, total);
    if (!grown) {
        large_link(arena, large);
        return NULL;
    }
    grown->raw = grown;
    grown->n_bytes = total;
    large_link(arena, grown);
    uncount_bytes(arena);
    return grown + 1;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void *arena_alloc_aligned(struct arena *arena, size_t n_bytes, size_t alignment) {
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    if (alignment < ARENA_ALIGN) {
        alignment = ARENA_ALIGN;
    }
    if (n_bytes > ARENA_LARGE_BYTES || alignment > ARENA_LARGE_BYTES / 2 + ARENA_ALIGN) {
        void *bytes = large_alloc(arena, n_bytes, alignment);
        return bytes ? bytes : out_of_memory(arena);
    }
    for (;;) {
        size_t padding = (0 - (uintptr_t)arena->at) & (alignment - 1);
        if (padding + n_bytes <= (size_t)(arena->end - arena->at)) {
            arena->last = arena->at + padding;
            arena->at = arena->last + round_up(n_bytes);
            return arena->last;
        }
        if (!chunk_add(arena)) {
            return out_of_memory(arena);
        }
    }
}

/* Blocks begin aligned and chunks end aligned, so that most blocks need no padding. */
void *arena_alloc(struct arena *arena, size_t n_bytes) {
    if (n_bytes <= ARENA_LARGE_BYTES && n_bytes <= (size_t)(arena->end - arena->at)) {
        arena->last = arena->at;
        arena->at += round_up(n_bytes);
        return arena->last;
    }
    return arena_alloc_aligned(arena, n_bytes, ARENA_ALIGN);
}

void *arena_alloc_array(struct arena *arena, size_t n, size_t size) {
    size_t n_bytes;
    return checked_mul(n, size, &n_bytes) ? arena_alloc(arena, n_bytes) : out_of_memory(arena);
}

void *arena_calloc(struct arena *arena, size_t n, size_t size) {
    size_t n_bytes;
    void *ptr = checked_mul(n, size, &n_bytes) ? arena_alloc(arena, n_bytes) : out_of_memory(arena);
    return ptr ? memset(ptr, 0, n_bytes) : NULL;
}

static void *realloc_copy(struct arena *arena, void *ptr, size_t old_bytes, size_t new_bytes) {
    void *fresh = arena_alloc(arena, new_bytes);
    if (fresh) {
        memcpy(fresh, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    }
    return fresh;
}

void *arena_realloc(struct arena *arena, void *ptr, size_t old_bytes, size_t new_bytes) {
    if (!ptr) {
        return arena_alloc(arena, new_bytes);
    }
    if (old_bytes > ARENA_LARGE_BYTES) {
        bool simple = large_of(ptr)->raw == (void *)large_of(ptr);
        if (simple && new_bytes > ARENA_LARGE_BYTES) {
            void *grown = large_realloc(arena, ptr, new_bytes);
            return grown ? grown : out_of_memory(arena);
        }
        void *fresh = realloc_copy(arena, ptr, old_bytes, new_bytes);
        if (fresh) {
            struct large *large = large_of(ptr);
            large_unlink(arena, large);
            large_free(arena->cache, large);
            uncount_bytes(arena);
        }
        return fresh;
    }
    if (ptr == arena->last && new_bytes <= ARENA_LARGE_BYTES &&
        new_bytes <= (size_t)(arena->end - arena->last)) {
        arena->at = arena->last + round_up(new_bytes);
        return ptr;
    }
    return new_bytes <= old_bytes ? ptr : realloc_copy(arena, ptr, old_bytes, new_bytes);
}

/* ---- text ------------------------------------------------------------------------------------ */

struct str arena_dup(struct arena *arena, struct str text) {
    size_t n_bytes;
    char *copy =
        checked_add(text.len, 1, &n_bytes) ? arena_alloc(arena, n_bytes) : out_of_memory(arena);
    if (!copy) {
        return str_make(NULL, 0);
    }
    if (text.len > 0) {
        memcpy(copy, text.ptr, text.len);
    }
    copy[text.len] = '\0';
    return str_make(copy, text.len);
}

struct str arena_printf(struct arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = n >= 0 ? arena_alloc(arena, (size_t)n + 1) : NULL;
    if (text) {
        vsnprintf(text, (size_t)n + 1, format, again);
    }
    va_end(again);
    va_end(args);
    return str_make(text, text ? (size_t)n : 0);
}
