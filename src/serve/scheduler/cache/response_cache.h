/* Answers that are kept, by the hash of what they answer: a store of blocks of bytes under one
 * limit, which counts everything that it takes, tables and headers and blocks that somebody still
 * reads. What was used longest ago makes room. It refuses to know what is in a block (call_cache.c
 * does).
 *
 * A model version has a scope of its own: what is stored there is found there only, and goes with
 * it.
 *
 * Thread: any, but for new and free. Nothing is copied, filled or given back under the lock. */
#ifndef SLUICE_SERVE_SCHEDULER_CACHE_RESPONSE_CACHE_H
#define SLUICE_SERVE_SCHEDULER_CACHE_RESPONSE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/keyed_hash.h"
#include "core/base/status.h"

struct call_hash;
struct response_cache;
struct cache_entry;

struct cache_scope {
    struct response_cache *cache;  /* NULL: nothing is kept; the rest means nothing then */
    uint64_t generation;           /* unlike that of any other scope of the process */
    const struct call_hash *keyed; /* what all keys of the cache begin with */
    struct cache_entry *first;
};

enum { RESPONSE_CACHE_ALIGNMENT = 64 /* of a block */ };

/* Returns: ST_NO_MEMORY, ST_UNSUPPORTED. Owns: *out until response_cache_free. */
enum status response_cache_new(uint64_t n_bytes, struct response_cache **out, struct error *err)
    __attribute__((warn_unused_result));
/* No scope is open, and nobody reads. NULL is allowed. */
void response_cache_free(struct response_cache *cache);

/* `cache` NULL: a scope in which nothing is kept. */
void cache_scope_open(struct cache_scope *scope, struct response_cache *cache);
/* Forgets what was stored in it. Nobody looks into it, stores or reads any more. */
void cache_scope_close(struct cache_scope *scope);

/* Returns: NULL when it is not there. Owns: stays as it is until cache_entry_unref. */
struct cache_entry *cache_find(struct cache_scope *scope, struct keyed_hash key);
/* Room for a block of so many bytes, to be filled and then given to cache_store. Returns: NULL when
 * there is none, be it because others are being read, or memory is out. */
struct cache_entry *cache_reserve(struct cache_scope *scope, size_t n_bytes);
/* From here on it is found. Takes the entry over; nothing is stored where the key is there
 * already. */
void cache_store(struct cache_scope *scope, struct keyed_hash key, struct cache_entry *entry);
/* Takes the caller's hold on what was found. */
void cache_entry_unref(struct cache_entry *entry);

/* The block. */
void *cache_entry_data(struct cache_entry *entry);

#endif
