/* Buckets of four entries, each of which is a line of the processor's cache: the tag and the
 * owners.
 *
 * A tag is the upper part of a hash and, in its lowest byte, the age: a count that goes up by one
 * while a 64th of the table is written. While somebody makes an entry another one's its tag is
 * BUSY; a reader looks at the tag again behind the owners.
 *
 * An owner is a host's number, its generation, and how many blocks it had been sent then. A host
 * that is forgotten has another generation from then on, so that nothing has to be searched for. */
#include "pick/pool/prefix/table.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "core/event/lock.h"

enum { WAYS = 4, MOST_NUMBERS = 65536, AGES_IN_TABLE = 64, AHEAD = 8 };

static const uint64_t AGE = 0xff, BUSY = 1;

struct entry {
    alignas(64) _Atomic uint64_t tag;           /* 0: free */
    _Atomic uint64_t owners[PREFIX_MOST_HOSTS]; /* 0: free */
};

struct host {
    _Atomic uint32_t generation; /* 16 bits of it count */
    _Atomic uint32_t n_sent;     /* blocks */
    _Atomic uint32_t capacity;
    uint32_t next; /* of the numbers that are free; under the lock */
};

struct prefix_table {
    _Atomic uint32_t n_refs;
    struct entry *entries;
    uint64_t n_buckets;
    _Atomic uint64_t n_written;
    uint64_t seed;
    void *memory; /* of the entries */
    struct host *hosts;
    struct lock lock; /* of the numbers */
    uint32_t free_host, n_hosts;
};

/* ---- life ------------------------------------------------------------------------------------ */

/* By calloc, which gives memory of this size as the system does: untouched. */
static bool make_entries(struct prefix_table *table, size_t n_bytes) {
    table->n_buckets = n_bytes / (WAYS * sizeof(struct entry));
    table->hosts = calloc(MOST_NUMBERS, sizeof(*table->hosts));
    table->memory =
        calloc(1, table->n_buckets * WAYS * sizeof(struct entry) + sizeof(struct entry));
    uintptr_t at = (uintptr_t)table->memory + sizeof(struct entry) - 1;
    table->entries = (struct entry *)(at - at % sizeof(struct entry)); /* NOLINT: aligned */
    return table->hosts && table->memory;
}

enum status prefix_table_new(size_t max_bytes, struct prefix_table **out, struct error *err) {
    struct prefix_table *table = calloc(1, sizeof(*table));
    size_t own = sizeof(*table) + MOST_NUMBERS * sizeof(*table->hosts) + sizeof(struct entry);
    static_assert(PREFIX_MIN_BYTES / 2 >= MOST_NUMBERS * sizeof(struct host), "room for entries");
    assert(max_bytes >= PREFIX_MIN_BYTES);
    if (!table || !make_entries(table, max_bytes - own)) {
        if (table) {
            free(table->hosts);
            free(table->memory);
        }
        free(table);
        return error_set(err, ST_NO_MEMORY, "no memory for a table of prompts of %zu bytes",
                         max_bytes);
    }
    random_fill(&table->seed, sizeof(table->seed));
    lock_init(&table->lock);
    atomic_init(&table->n_refs, 1);
    *out = table;
    return ST_OK;
}

void prefix_table_free(struct prefix_table *table) {
    if (table && atomic_fetch_sub_explicit(&table->n_refs, 1, memory_order_acq_rel) == 1) {
        lock_fini(&table->lock);
        free(table->hosts);
        free(table->memory);
        free(table);
    }
}

struct prefix_table *prefix_table_ref(struct prefix_table *table) {
    atomic_fetch_add_explicit(&table->n_refs, 1, memory_order_relaxed);
    return table;
}

uint64_t prefix_table_seed(const struct prefix_table *table) {
    return table->seed;
}

size_t prefix_table_entries(const struct prefix_table *table) {
    return (size_t)table->n_buckets * WAYS;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

uint32_t prefix_table_join(struct prefix_table *table) {
    lock_take(&table->lock);
    uint32_t host = table->free_host;
    if (host != 0) {
        table->free_host = table->hosts[host].next;
    } else if (table->n_hosts + 1 < MOST_NUMBERS) {
        host = ++table->n_hosts;
    }
    lock_drop(&table->lock);
    return host;
}

void prefix_table_forget(struct prefix_table *table, uint32_t host) {
    if (host != 0) {
        atomic_fetch_add_explicit(&table->hosts[host].generation, 1, memory_order_relaxed);
    }
}

void prefix_table_leave(struct prefix_table *table, uint32_t host) {
    prefix_table_forget(table, host);
    if (host != 0) {
        lock_take(&table->lock);
        table->hosts[host].next = table->free_host;
        table->free_host = host;
        lock_drop(&table->lock);
    }
}

/* ---- owners ---------------------------------------------------------------------------------- */

static uint32_t get(const _Atomic uint32_t *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* The number, the generation: what an owner is told by. */
static uint32_t name_of(const struct prefix_table *table, uint32_t host) {
    return host << 16 | (get(&table->hosts[host].generation) & 0xffff);
}

static uint64_t owner_make(uint32_t name, uint32_t n_sent) {
    return (uint64_t)name << 32 | n_sent;
}
static uint32_t owner_name(uint64_t owner) {
    return (uint32_t)(owner >> 32);
}

/* Has it, as far as we know, still what it was sent then? */
static bool counts(const struct prefix_table *table, uint64_t owner) {
    uint32_t name = owner_name(owner);
    const struct host *host = &table->hosts[name >> 16];
    return owner != 0 && name_of(table, name >> 16) == name &&
           get(&host->n_sent) - (uint32_t)owner <= get(&host->capacity);
}

/* ---- entries --------------------------------------------------------------------------------- */

static struct entry *bucket_of(const struct prefix_table *table, uint64_t hash) {
    return &table->entries[((hash & UINT32_MAX) * table->n_buckets >> 32) * WAYS];
}

/* Never 0, and never that of BUSY. */
static uint64_t tag_of(uint64_t hash) {
    return (hash | UINT64_C(1) << 63) & ~AGE;
}

/* Returns: NULL where there is none; else *seen is its tag. */
static struct entry *find(const struct prefix_table *table, uint64_t hash, uint64_t *seen) {
    struct entry *bucket = bucket_of(table, hash);
    for (int i = 0; i < WAYS; i++) {
        *seen = atomic_load_explicit(&bucket[i].tag, memory_order_acquire);
        if ((*seen & ~AGE) == tag_of(hash)) {
            return &bucket[i];
        }
    }
    return NULL;
}

/* The one that is free, or was not written for the longest time. */
static struct entry *find_oldest(const struct prefix_table *table, uint64_t hash, uint64_t now,
                                 uint64_t *seen) {
    struct entry *bucket = bucket_of(table, hash), *oldest = NULL;
    uint64_t most = 0;
    for (int i = 0; i < WAYS; i++) {
        uint64_t tag = atomic_load_explicit(&bucket[i].tag, memory_order_relaxed);
        uint64_t age = tag == 0 ? AGE + 1 : (now - tag) & AGE;
        if (tag != BUSY && (!oldest || age > most)) {
            oldest = &bucket[i];
            most = age;
            *seen = tag;
        }
    }
    return oldest;
}

/* Makes it the hash's, with one owner; unless somebody else is at it. */
static void replace(struct entry *entry, uint64_t seen, uint64_t tag, uint64_t owner) {
    if (!atomic_compare_exchange_strong_explicit(&entry->tag, &seen, BUSY, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return;
    }
    for (int i = 0; i < PREFIX_MOST_HOSTS; i++) {
        atomic_store_explicit(&entry->owners[i], i == 0 ? owner : 0, memory_order_release);
    }
    atomic_store_explicit(&entry->tag, tag, memory_order_release);
}

/* The place of a host's owner in an entry, looked for at `place` first; PREFIX_MOST_HOSTS: none.
 * *seen is the owner. */
static inline uint32_t place_of(const struct entry *entry, uint32_t name, uint32_t place,
                                uint64_t *seen) {
    *seen = atomic_load_explicit(&entry->owners[place], memory_order_acquire);
    if (owner_name(*seen) == name) { /* as a rule: neighbours in a chain are written together */
        return place;
    }
    for (place = 0; place < PREFIX_MOST_HOSTS; place++) {
        *seen = atomic_load_explicit(&entry->owners[place], memory_order_acquire);
        if (owner_name(*seen) == name) {
            break;
        }
    }
    return place;
}

/* A host that writes, block by block. */
struct writer {
    uint32_t place; /* of the last block's owner */
    bool crowded;   /* all owners of the last block that was looked at counted */
};

/* Where the owner goes: its own place, else one that is free or counts no more, else where that of
 * the block before went: so one host loses the chain, and not each of them a link. */
static uint32_t place_for(const struct prefix_table *table, const struct entry *entry,
                          uint64_t owner, struct writer *writer, uint64_t *seen) {
    uint32_t own = place_of(entry, owner_name(owner), writer->place, seen);
    if (own < PREFIX_MOST_HOSTS) {
        return own;
    }
    for (uint32_t i = 0; i < PREFIX_MOST_HOSTS; i++) {
        *seen = atomic_load_explicit(&entry->owners[i], memory_order_relaxed);
        if (*seen == 0 || (!writer->crowded && !counts(table, *seen))) {
            return i;
        }
    }
    writer->crowded = true;
    *seen = atomic_load_explicit(&entry->owners[writer->place], memory_order_relaxed);
    return writer->place;
}

static void add(const struct prefix_table *table, struct entry *entry, uint64_t seen, uint64_t tag,
                uint64_t owner, struct writer *writer) {
    uint64_t other;
    writer->place = place_for(table, entry, owner, writer, &other);
    if (seen != tag) { /* as young as that */
        atomic_compare_exchange_strong_explicit(&entry->tag, &seen, tag, memory_order_relaxed,
                                                memory_order_relaxed);
    }
    atomic_compare_exchange_strong_explicit(&entry->owners[writer->place], &other, owner,
                                            memory_order_release, memory_order_relaxed);
}

static void prefetch(const struct prefix_table *table, const uint64_t *hashes, uint32_t i,
                     uint32_t n) {
    if (i < n) {
        __builtin_prefetch(bucket_of(table, hashes[i]));
    }
}

void prefix_table_record(struct prefix_table *table, uint32_t host, uint32_t capacity,
                         const uint64_t *hashes, uint32_t n) {
    if (host == 0) {
        return;
    }
    uint64_t written = atomic_fetch_add_explicit(&table->n_written, n, memory_order_relaxed);
    uint64_t age = written / (prefix_table_entries(table) / AGES_IN_TABLE) & AGE;
    uint32_t name = name_of(table, host);
    uint32_t sent = atomic_fetch_add_explicit(&table->hosts[host].n_sent, n, memory_order_relaxed);
    struct writer writer = {.place = sent % PREFIX_MOST_HOSTS};
    atomic_store_explicit(&table->hosts[host].capacity, capacity, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t seen, tag = tag_of(hashes[i]) | age, owner = owner_make(name, sent + i);
        prefetch(table, hashes, i + AHEAD, n);
        struct entry *entry = find(table, hashes[i], &seen);
        if (entry) {
            add(table, entry, seen, tag, owner, &writer);
        } else {
            entry = find_oldest(table, hashes[i], age, &seen);
            if (entry) {
                replace(entry, seen, tag, owner);
            }
        }
    }
}

/* ---- matches --------------------------------------------------------------------------------- */

/* One who has all blocks so far. */
struct match {
    uint32_t name, place; /* of the owner, in the entry of the last block */
    uint32_t n_sent, capacity;
    uint32_t n_blocks; /* of one who has not all */
};

static bool is_still(const struct entry *entry, uint64_t tag) {
    return ((atomic_load_explicit(&entry->tag, memory_order_relaxed) ^ tag) & ~AGE) == 0;
}

/* Those of the hash's owners that count. Returns: how many. */
static uint32_t read_owners(const struct prefix_table *table, uint64_t hash,
                            struct match out[PREFIX_MOST_HOSTS]) {
    uint64_t tag;
    uint32_t n = 0;
    const struct entry *entry = find(table, hash, &tag);
    for (uint32_t i = 0; entry && i < PREFIX_MOST_HOSTS; i++) {
        uint64_t owner = atomic_load_explicit(&entry->owners[i], memory_order_acquire);
        if (counts(table, owner)) {
            const struct host *host = &table->hosts[owner_name(owner) >> 16];
            out[n++] = (struct match){.name = owner_name(owner),
                                      .place = i,
                                      .n_sent = get(&host->n_sent),
                                      .capacity = get(&host->capacity)};
        }
    }
    return entry && is_still(entry, tag) ? n : 0; /* it may just have become another's */
}

static bool has(const struct entry *entry, struct match *match) {
    uint64_t owner;
    uint32_t place = place_of(entry, match->name, match->place, &owner);
    if (place == PREFIX_MOST_HOSTS || match->n_sent - (uint32_t)owner > match->capacity) {
        return false;
    }
    match->place = place;
    return true;
}

/* Those of the first `n`, who have all blocks before this one, that have it, too, come to be in
 * front. Returns: how many. */
static uint32_t keep_both(const struct prefix_table *table, uint64_t hash, struct match *matches,
                          uint32_t n) {
    uint64_t tag;
    const struct entry *entry = find(table, hash, &tag);
    for (uint32_t i = n; entry && i-- > 0;) {
        if (!has(entry, &matches[i])) {
            struct match match = matches[i];
            matches[i] = matches[--n];
            matches[n] = match;
        }
    }
    return entry && is_still(entry, tag) ? n : 0;
}

uint32_t prefix_table_match(const struct prefix_table *table, const uint64_t *hashes, uint32_t n,
                            struct prefix_hit out[PREFIX_MOST_HOSTS]) {
    struct match matches[PREFIX_MOST_HOSTS];
    uint32_t n_hits = n > 0 ? read_owners(table, hashes[0], matches) : 0, n_left = n_hits;
    uint32_t n_blocks = 1;
    for (; n_blocks < n && n_left > 0; n_blocks++) {
        prefetch(table, hashes, n_blocks + AHEAD, n);
        uint32_t n_both = keep_both(table, hashes[n_blocks], matches, n_left);
        while (n_left > n_both) {
            matches[--n_left].n_blocks = n_blocks;
        }
    }
    for (uint32_t i = 0; i < n_hits; i++) {
        out[i] =
            (struct prefix_hit){matches[i].name >> 16, i < n_left ? n_blocks : matches[i].n_blocks};
    }
    return n_hits;
}
