/* The response cache: blocks of bytes by 128-bit key, under one size limit that includes tables,
 * headers and blocks that are still referenced. The least recently used entry is evicted first.
 * call_cache.c defines the contents.
 *
 * Each model version has a scope: entries are found in the scope that stored them only, and are
 * dropped with it.
 *
 * Thread: any, except for new and free. Blocks are not copied, filled or freed under the lock. */
#ifndef SLUICE_SERVE_SCHEDULER_CACHE_RESPONSE_CACHE_H
#define SLUICE_SERVE_SCHEDULER_CACHE_RESPONSE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/hash.h"
#include "core/base/status.h"

struct call_hash;
struct response_cache;
struct cache_entry;

struct cache_scope {
    struct response_cache *cache;  /* NULL: caching is off and the other members are unused */
    uint64_t generation;           /* unique in the process */
    const struct call_hash *keyed; /* hash state with the scope's prefix of all keys */
    LIST_HEAD(, cache_entry) entries;
};

enum { RESPONSE_CACHE_ALIGNMENT = 64 /* of a block */ };

/* Returns: ST_NO_MEMORY, ST_UNSUPPORTED. Owns: *out until response_cache_free. */
enum status response_cache_new(uint64_t n_bytes, struct response_cache **out,
                               struct error *err) SLUICE_MUST_USE;
struct shared_budget;

/* Entries count in `budget` from now on, and are not stored where it is used up. Before the first
 * use of a scope. */
void response_cache_set_budget(struct response_cache *cache, const struct shared_budget *budget);
/* Evicts the least recently used entries, at least `n_bytes` of them if there are so many.
 * Returns: bytes freed. Thread: any. */
uint64_t response_cache_shrink(struct response_cache *cache, uint64_t n_bytes);
/* No scope is open, and no entry is referenced. NULL is allowed. */
void response_cache_free(struct response_cache *cache);

/* `cache` NULL: nothing is stored in the scope. */
void cache_scope_open(struct cache_scope *scope, struct response_cache *cache);
/* Drops the scope's entries. No thread uses the scope any more. */
void cache_scope_close(struct cache_scope *scope);

/* Returns: NULL when not found. Owns: a reference, until cache_entry_unref; the block does not
 * change. */
struct cache_entry *cache_find(struct cache_scope *scope, struct keyed_hash key);
/* Allocates a block to be filled and passed to cache_store. Returns: NULL when the limit cannot be
 * met (too many entries are referenced) or memory is out. */
struct cache_entry *cache_reserve(struct cache_scope *scope, size_t n_bytes);
/* Publishes the entry. Owns: takes the entry; it is dropped when the key exists already. */
void cache_store(struct cache_scope *scope, struct keyed_hash key, struct cache_entry *entry);
/* Drops the reference that cache_find returned. */
void cache_entry_unref(struct cache_entry *entry);

/* Returns: the block's bytes. */
void *cache_entry_data(struct cache_entry *entry);

#endif
