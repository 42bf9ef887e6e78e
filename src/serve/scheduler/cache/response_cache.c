/* A hash table, an LRU list, and a list per scope, under one lock that is held only while pointers
 * change. An entry's size is counted from before its allocation until after it is freed, so the
 * limit always holds. */
#include "serve/scheduler/cache/response_cache.h"

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"
#include "core/base/random.h"
#include "core/event/lock.h"
#include "serve/scheduler/cache/call_hash.h"
#include "serve/scheduler/shared_budget.h"

enum {
    BYTES_PER_BUCKET = 512, /* of the limit: about the size of a small answer */
    BUCKETS_LEAST = 16,
    BUCKETS_MOST = 1 << 22,
    HEAP_BYTES = 64,             /* the allocator's overhead per block, at most ... */
    HEAP_PAGES_FROM = 64 * 1024, /* ... and from here on, where a block may get pages of its own */
    HEAP_PAGES = 2 * 4096,
    MAX_UNLINK = 64,     /* entries unlinked per lock hold */
    MAX_EVICT_SCAN = 64, /* referenced entries skipped in search of an evictable one */
};

struct cache_entry {
    alignas(RESPONSE_CACHE_ALIGNMENT) struct keyed_hash key;
    struct response_cache *cache;
    struct cache_scope *scope;
    LIST_ENTRY(cache_entry) bucket_link; /* after unlinking: in the list to be freed */
    TAILQ_ENTRY(cache_entry) lru_link;
    LIST_ENTRY(cache_entry) scope_link;
    size_t n_counted; /* bytes, including overhead */
    size_t n_readers;
    bool listed; /* in the table */
};

LIST_HEAD(cache_bucket, cache_entry);

struct response_cache {
    struct lock lock;
    size_t limit, n_own, n_used; /* bytes; n_own: the table */
    uint64_t generations;
    struct call_hash keyed;
    struct shared_budget budget;   /* without the lock */
    TAILQ_HEAD(, cache_entry) lru; /* least recently used first */
    size_t n_buckets;              /* a power of two */
    struct cache_bucket buckets[];
};

/* ---- creation -------------------------------------------------------------------------------- */

enum status response_cache_new(uint64_t n_bytes, struct response_cache **out, struct error *err) {
    size_t n_buckets = BUCKETS_LEAST;
    while (n_buckets < BUCKETS_MOST && n_buckets < n_bytes / BYTES_PER_BUCKET) {
        n_buckets *= 2;
    }
    size_t own = sizeof(struct response_cache) + n_buckets * sizeof(struct cache_bucket);
    struct response_cache *cache = calloc(1, own);
    if (!cache) {
        return error_no_memory(err, "the response cache");
    }
    unsigned char key[CALL_HASH_KEY_BYTES];
    random_fill(key, sizeof(key));
    if (!call_hash_init(&cache->keyed, key)) {
        call_hash_fini(&cache->keyed);
        free(cache);
        return error_set(err, ST_UNSUPPORTED,
                         "the response cache needs SIPHASH of OpenSSL, whose configuration on this "
                         "machine offers none (its default provider has it)");
    }
    lock_init(&cache->lock);
    TAILQ_INIT(&cache->lru);
    cache->limit = n_bytes < SIZE_MAX ? (size_t)n_bytes : SIZE_MAX;
    cache->n_own = cache->n_used = own;
    cache->n_buckets = n_buckets;
    metric_add(METRIC_RESPONSE_CACHE_BYTES, (int64_t)own);
    *out = cache;
    return ST_OK;
}

void response_cache_free(struct response_cache *cache) {
    if (cache) {
        assert(TAILQ_EMPTY(&cache->lru));
        metric_add(METRIC_RESPONSE_CACHE_BYTES, -(int64_t)cache->n_used);
        lock_fini(&cache->lock);
        call_hash_fini(&cache->keyed);
        free(cache);
    }
}

/* ---- lists, under the lock ------------------------------------------------------------------- */

static struct cache_bucket *bucket_of(struct response_cache *cache, struct keyed_hash key) {
    return &cache->buckets[key.low & (cache->n_buckets - 1)];
}

static struct cache_entry *find_entry(struct response_cache *cache, const struct cache_scope *scope,
                                      struct keyed_hash key) {
    struct cache_entry *entry;
    LIST_FOREACH(entry, bucket_of(cache, key), bucket_link) {
        if (entry->scope == scope && keyed_hash_eq(entry->key, key)) {
            return entry;
        }
    }
    return NULL;
}

static void entry_unlink(struct response_cache *cache, struct cache_entry *entry) {
    LIST_REMOVE(entry, bucket_link);
    LIST_REMOVE(entry, scope_link);
    TAILQ_REMOVE(&cache->lru, entry, lru_link);
    entry->listed = false;
    metric_add(METRIC_RESPONSE_CACHE_ENTRIES, -1);
}

static void adjust_used_bytes(struct response_cache *cache, size_t before, size_t after) {
    lock_assert_held(&cache->lock);
    cache->n_used = cache->n_used - before + after;
    assert(after <= before || cache->n_used <= cache->limit);
    metric_add(METRIC_RESPONSE_CACHE_BYTES, (int64_t)after - (int64_t)before);
}

void response_cache_set_budget(struct response_cache *cache, const struct shared_budget *budget) {
    cache->budget = *budget;
}

/* ---- freeing, without the lock --------------------------------------------------------------- */

/* Frees an entry without references. The lock is released meanwhile and held on return. */
static void free_and_relock(struct response_cache *cache, struct cache_entry *entry) {
    size_t n_counted = entry->n_counted;
    lock_assert_not_held(&cache->lock);
    free(entry);
    shared_budget_give(&cache->budget, n_counted);
    lock_acquire(&cache->lock);
    adjust_used_bytes(cache, n_counted, 0);
}

/* The least recently used entry without references. NULL: none among the first MAX_EVICT_SCAN. */
static struct cache_entry *find_evictable(const struct response_cache *cache) {
    struct cache_entry *entry = TAILQ_FIRST(&cache->lru);
    for (int i = 0; entry && entry->n_readers > 0; i++) {
        entry = i < MAX_EVICT_SCAN ? TAILQ_NEXT(entry, lru_link) : NULL;
    }
    return entry;
}

/* With the lock, which is released meanwhile. Returns: bytes freed; 0: none can be evicted. */
static size_t evict_one(struct response_cache *cache) {
    struct cache_entry *entry = find_evictable(cache);
    if (!entry) {
        return 0;
    }
    size_t n_counted = entry->n_counted;
    entry_unlink(cache, entry);
    lock_release(&cache->lock);
    metric_add(METRIC_RESPONSE_CACHE_EVICTIONS_TOTAL, 1);
    free_and_relock(cache, entry);
    return n_counted;
}

uint64_t response_cache_shrink(struct response_cache *cache, uint64_t n_bytes) {
    uint64_t n_freed = 0;
    size_t n = 1;
    lock_acquire(&cache->lock);
    while (n_freed < n_bytes && n > 0) {
        n = evict_one(cache);
        n_freed += n;
    }
    lock_release(&cache->lock);
    return n_freed;
}

/* ---- scopes ---------------------------------------------------------------------------------- */

void cache_scope_open(struct cache_scope *scope, struct response_cache *cache) {
    *scope = (struct cache_scope){.cache = cache};
    if (cache) {
        lock_acquire(&cache->lock);
        scope->generation = ++cache->generations;
        lock_release(&cache->lock);
        scope->keyed = &cache->keyed;
    }
}

/* Moves a few of the scope's entries to `gone`, which is empty. */
static void unlink_some(struct cache_scope *scope, struct cache_bucket *gone) {
    struct cache_entry *entry;
    lock_assert_held(&scope->cache->lock);
    LIST_INIT(gone);
    for (int i = 0; (entry = LIST_FIRST(&scope->entries)) && i < MAX_UNLINK; i++) {
        assert(entry->n_readers == 0);
        entry_unlink(scope->cache, entry);
        LIST_INSERT_HEAD(gone, entry, bucket_link);
    }
}

void cache_scope_close(struct cache_scope *scope) {
    struct response_cache *cache = scope->cache;
    struct cache_bucket gone;
    struct cache_entry *entry;
    if (!cache) {
        return;
    }
    lock_acquire(&cache->lock);
    unlink_some(scope, &gone);
    while ((entry = LIST_FIRST(&gone))) {
        lock_release(&cache->lock);
        LIST_REMOVE(entry, bucket_link);
        free_and_relock(cache, entry);
        if (LIST_EMPTY(&gone)) {
            unlink_some(scope, &gone);
        }
    }
    lock_release(&cache->lock);
    scope->cache = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct cache_entry *cache_find(struct cache_scope *scope, struct keyed_hash key) {
    struct response_cache *cache = scope->cache;
    lock_acquire(&cache->lock);
    struct cache_entry *entry = find_entry(cache, scope, key);
    if (entry) {
        entry->n_readers++;
        TAILQ_REMOVE(&cache->lru, entry, lru_link);
        TAILQ_INSERT_TAIL(&cache->lru, entry, lru_link);
    }
    lock_release(&cache->lock);
    return entry;
}

void cache_entry_unref(struct cache_entry *entry) {
    struct response_cache *cache = entry->cache;
    lock_acquire(&cache->lock);
    assert(entry->n_readers > 0 && entry->listed); /* referenced entries are not evicted */
    entry->n_readers--;
    lock_release(&cache->lock);
}

void *cache_entry_data(struct cache_entry *entry) {
    return entry + 1;
}

/* ---- storing --------------------------------------------------------------------------------- */

/* The size to allocate and the size to count for a block. Returns: false on overflow. */
static bool entry_sizes(size_t n_bytes, size_t *asked, size_t *counted) {
    size_t whole;
    if (!checked_add(n_bytes, sizeof(struct cache_entry) + RESPONSE_CACHE_ALIGNMENT - 1, &whole)) {
        return false;
    }
    *asked = whole / RESPONSE_CACHE_ALIGNMENT * RESPONSE_CACHE_ALIGNMENT;
    return checked_add(*asked, *asked < HEAP_PAGES_FROM ? HEAP_BYTES : HEAP_PAGES, counted);
}

/* Counts `n` more bytes, after evicting as needed. Returns: false when not enough can be
 * evicted. */
static bool reserve_bytes(struct response_cache *cache, size_t n) {
    if (cache->limit < cache->n_own || cache->limit - cache->n_own < n) {
        return false;
    }
    if (!shared_budget_take(&cache->budget, n)) {
        return false;
    }
    bool fits = true;
    lock_acquire(&cache->lock);
    while (fits && cache->n_used > cache->limit - n) {
        fits = evict_one(cache) > 0;
    }
    if (fits) {
        adjust_used_bytes(cache, 0, n);
    }
    lock_release(&cache->lock);
    if (!fits) {
        shared_budget_give(&cache->budget, n);
    }
    return fits;
}

struct cache_entry *cache_reserve(struct cache_scope *scope, size_t n_bytes) {
    struct response_cache *cache = scope->cache;
    size_t asked, n_counted;
    struct cache_entry *entry = NULL;
    if (entry_sizes(n_bytes, &asked, &n_counted) && reserve_bytes(cache, n_counted)) {
        entry = aligned_alloc(RESPONSE_CACHE_ALIGNMENT, asked);
        if (!entry) {
            shared_budget_give(&cache->budget, n_counted);
            lock_acquire(&cache->lock);
            adjust_used_bytes(cache, n_counted, 0);
            lock_release(&cache->lock);
        }
    }
    if (!entry) {
        metric_add(METRIC_RESPONSE_CACHE_REFUSED_TOTAL, 1);
        return NULL;
    }
    *entry = (struct cache_entry){.cache = cache, .scope = scope, .n_counted = n_counted};
    return entry;
}

void cache_store(struct cache_scope *scope, struct keyed_hash key, struct cache_entry *entry) {
    struct response_cache *cache = scope->cache;
    entry->key = key;
    lock_acquire(&cache->lock);
    bool is_new = !find_entry(cache, scope, key);
    if (is_new) {
        LIST_INSERT_HEAD(bucket_of(cache, entry->key), entry, bucket_link);
        LIST_INSERT_HEAD(&entry->scope->entries, entry, scope_link);
        TAILQ_INSERT_TAIL(&cache->lru, entry, lru_link);
        entry->listed = true;
        metric_add(METRIC_RESPONSE_CACHE_ENTRIES, 1);
    }
    lock_release(&cache->lock);
    if (!is_new) { /* a concurrent call stored the same key */
        free_and_relock(cache, entry);
        lock_release(&cache->lock);
    }
}
