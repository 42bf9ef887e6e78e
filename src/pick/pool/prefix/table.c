/* A hash table of buckets with four entries; an entry is one cache line: its tag and its owners.
 * The indexes share the entries: a hash is combined with a salt of its index.
 *
 * A tag is the upper part of a hash and, in the lowest byte, an age: a counter that increases while
 * a 64th of the table is written. While an entry is replaced its tag is BUSY; a reader checks the
 * tag again after reading the owners.
 *
 * An owner is a host number, the host's generation, and a stamp, the host's clock when the block
 * was sent there. Invalidating a host increases its generation, so that its owners need not be
 * found.
 *
 * A host's cache is least recently used: `age`, the clock less the stamp, estimates how many of the
 * host's blocks were sent there since, and at `capacity` the block counts no more. So a new block
 * advances the clock by one, and one that is sent again by the share of the host's blocks that come
 * to be older by it, age / capacity: none for the newest block, one for the oldest.
 *
 * Blocks in flight have entries of their own, so that requests that endpoints refuse replace none
 * of those that count. */
#include "pick/pool/prefix/table.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/event/lock.h"

enum { WAYS = 4, MAX_HOSTS = 65536, AGES_IN_TABLE = 64, PREFETCH_DISTANCE = 8 };
enum { N_CACHES = MAX_HOSTS * PREFIX_MAX_INDEXES };
enum { HELD_SHARE = 8 };   /* one of so many buckets is for blocks in flight */
enum { FRESH_SHARE = 64 }; /* of a host's cache: see is_fresh */

static const uint64_t AGE = 0xff, BUSY = 1;

struct entry {
    alignas(64) _Atomic uint64_t tag;          /* 0: free */
    _Atomic uint64_t owners[PREFIX_MAX_HOSTS]; /* 0: free */
};

struct host {
    _Atomic uint32_t generation; /* 16 bits are used */
    uint32_t next;               /* list of free host numbers; under the lock */
};

/* A host's cache in one index. */
struct host_cache {
    _Atomic uint32_t clock;
    _Atomic uint32_t capacity; /* blocks */
};

struct area {
    struct entry *entries;
    uint64_t n_buckets;
    _Atomic uint64_t n_written;
};

struct prefix_table {
    _Atomic uint32_t n_refs;
    struct area sent;         /* blocks that endpoints have taken */
    struct area held;         /* blocks in flight; a stamp is the number of blocks written here */
    _Atomic uint32_t n_holds; /* struct prefix_hold with blocks; 0: `held` is not read */
    uint64_t seed;
    void *memory; /* of entries, hosts and caches */
    size_t n_memory;
    struct host *hosts;
    struct host_cache *caches; /* MAX_HOSTS of each index */
    struct lock lock;          /* of the host numbers */
    uint32_t free_host, n_hosts;
};

/* ---- new, ref, unref ------------------------------------------------------------------------- */

/* Fresh pages of the system take no memory until they are written. Not from calloc: the heap of
 * Envoy, in which the picker may be, writes zeros. */
static bool make_entries(struct prefix_table *table, size_t n_bytes) {
    uint64_t n_buckets = n_bytes / (WAYS * sizeof(struct entry));
    size_t n_entries_bytes = n_buckets * WAYS * sizeof(struct entry);
    size_t n_hosts_bytes = MAX_HOSTS * sizeof(*table->hosts);
    static_assert(sizeof(struct entry) % alignof(struct host) == 0 &&
                      sizeof(struct host) % alignof(struct host_cache) == 0,
                  "hosts follow entries, and caches hosts");
    table->held.n_buckets = n_buckets / HELD_SHARE;
    table->sent.n_buckets = n_buckets - table->held.n_buckets;
    table->n_memory = n_entries_bytes + n_hosts_bytes + N_CACHES * sizeof(*table->caches);
    table->memory =
        mmap(NULL, table->n_memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table->memory == MAP_FAILED) {
        table->memory = NULL;
        return false;
    }
    char *at = table->memory;
    table->sent.entries = (struct entry *)at;
    table->held.entries = table->sent.entries + table->sent.n_buckets * WAYS;
    table->hosts = (struct host *)(at + n_entries_bytes);
    table->caches = (struct host_cache *)(at + n_entries_bytes + n_hosts_bytes);
    return true;
}

static void free_table(struct prefix_table *table) {
    if (table && table->memory) {
        munmap(table->memory, table->n_memory);
    }
    free(table);
}

enum status prefix_table_new(size_t max_bytes, uint64_t seed, struct prefix_table **out,
                             struct error *err) {
    struct prefix_table *table = calloc(1, sizeof(*table));
    size_t own = sizeof(*table) + MAX_HOSTS * sizeof(*table->hosts) +
                 N_CACHES * sizeof(*table->caches) + sizeof(struct entry);
    static_assert(PREFIX_MIN_BYTES * 3 / 4 >=
                      MAX_HOSTS * sizeof(struct host) + N_CACHES * sizeof(struct host_cache),
                  "room for entries");
    assert(max_bytes >= PREFIX_MIN_BYTES);
    if (!table || !make_entries(table, max_bytes - own)) {
        free_table(table);
        return error_no_memory(err, "a prefix table of %zu bytes", max_bytes);
    }
    table->seed = seed;
    if (seed == 0) {
        random_fill(&table->seed, sizeof(table->seed));
    }
    lock_init(&table->lock);
    atomic_init(&table->n_refs, 1);
    *out = table;
    return ST_OK;
}

void prefix_table_unref(struct prefix_table *table) {
    if (table && atomic_fetch_sub_explicit(&table->n_refs, 1, memory_order_acq_rel) == 1) {
        lock_fini(&table->lock);
        free_table(table);
    }
}

struct prefix_table *prefix_table_ref(struct prefix_table *table) {
    atomic_fetch_add_explicit(&table->n_refs, 1, memory_order_relaxed);
    return table;
}

uint64_t prefix_table_seed(const struct prefix_table *table) {
    return table->seed;
}

static size_t capacity_of(const struct area *area) {
    return (size_t)area->n_buckets * WAYS;
}

size_t prefix_table_capacity(const struct prefix_table *table) {
    return capacity_of(&table->sent);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

uint32_t prefix_table_add_host(struct prefix_table *table) {
    lock_acquire(&table->lock);
    uint32_t host = table->free_host;
    if (host != 0) {
        table->free_host = table->hosts[host].next;
    } else if (table->n_hosts + 1 < MAX_HOSTS) {
        host = ++table->n_hosts;
    }
    lock_release(&table->lock);
    return host;
}

void prefix_table_invalidate_host(struct prefix_table *table, uint32_t host) {
    if (host != 0) {
        atomic_fetch_add_explicit(&table->hosts[host].generation, 1, memory_order_relaxed);
    }
}

void prefix_table_remove_host(struct prefix_table *table, uint32_t host) {
    prefix_table_invalidate_host(table, host);
    if (host != 0) {
        lock_acquire(&table->lock);
        table->hosts[host].next = table->free_host;
        table->free_host = host;
        lock_release(&table->lock);
    }
}

/* ---- owners ---------------------------------------------------------------------------------- */

static uint32_t load_u32(const _Atomic uint32_t *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* Host number and generation, which identify an owner. */
static uint32_t name_of(const struct prefix_table *table, uint32_t host) {
    return host << 16 | (load_u32(&table->hosts[host].generation) & 0xffff);
}

static uint64_t owner_make(uint32_t name, uint32_t stamp) {
    return (uint64_t)name << 32 | stamp;
}
static uint32_t owner_name(uint64_t owner) {
    return (uint32_t)(owner >> 32);
}

static struct host_cache *cache_of(const struct prefix_table *table, uint32_t index,
                                   uint32_t host) {
    return &table->caches[index * (uint32_t)MAX_HOSTS + host];
}

/* A stamp may be ahead of the clock while another thread writes. */
static bool is_in_cache(uint32_t clock, uint64_t owner, uint32_t capacity) {
    return (int64_t)(int32_t)(clock - (uint32_t)owner) <= (int64_t)capacity;
}

/* Whether the host's cache still holds the block, by its capacity; a block in flight, whether it
 * was written recently. */
static inline bool is_owner_valid(const struct prefix_table *table, const struct area *area,
                                  uint32_t index, uint64_t owner) {
    uint32_t name = owner_name(owner);
    if (owner == 0 || name_of(table, name >> 16) != name) {
        return false;
    }
    if (area == &table->held) {
        uint64_t n_written = atomic_load_explicit(&area->n_written, memory_order_relaxed);
        return (uint32_t)n_written - (uint32_t)owner <= capacity_of(area);
    }
    const struct host_cache *cache = cache_of(table, index, name >> 16);
    return is_in_cache(load_u32(&cache->clock), owner, load_u32(&cache->capacity));
}

/* The clock advances with blocks that are new to the host. */
uint64_t prefix_table_host_blocks(const struct prefix_table *table, uint32_t host, uint32_t index) {
    const struct host_cache *cache = cache_of(table, index, host);
    uint32_t clock = load_u32(&cache->clock), capacity = load_u32(&cache->capacity);
    return host == 0 ? 0 : clock < capacity ? clock : capacity;
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct prefix_key *key, uint32_t i) {
    return key->hashes[i] ^ key->salt;
}

static struct entry *bucket_of(const struct area *area, uint64_t hash) {
    return &area->entries[((hash & UINT32_MAX) * area->n_buckets >> 32) * WAYS];
}

/* Never 0 and never BUSY. */
static uint64_t tag_of(uint64_t hash) {
    return (hash | UINT64_C(1) << 63) & ~AGE;
}

/* Returns: NULL when there is none; else *seen is its tag. */
static struct entry *find_entry(const struct area *area, uint64_t hash, uint64_t *seen) {
    struct entry *bucket = bucket_of(area, hash);
    for (int i = 0; i < WAYS; i++) {
        *seen = atomic_load_explicit(&bucket[i].tag, memory_order_acquire);
        if ((*seen & ~AGE) == tag_of(hash)) {
            return &bucket[i];
        }
    }
    return NULL;
}

/* A free entry, or the one not written for the longest time. */
static struct entry *find_oldest_entry(const struct area *area, uint64_t hash, uint64_t now,
                                       uint64_t *seen) {
    struct entry *bucket = bucket_of(area, hash), *oldest = NULL;
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

/* Makes the entry the hash's, with one owner, unless another thread is replacing it. */
static void replace_entry(struct entry *entry, uint64_t seen, uint64_t tag, uint64_t owner) {
    if (!atomic_compare_exchange_strong_explicit(&entry->tag, &seen, BUSY, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return;
    }
    for (int i = 0; i < PREFIX_MAX_HOSTS; i++) {
        atomic_store_explicit(&entry->owners[i], i == 0 ? owner : 0, memory_order_release);
    }
    atomic_store_explicit(&entry->tag, tag, memory_order_release);
}

/* The position of a host's owner in an entry, trying `place` first; PREFIX_MAX_HOSTS: none. *seen
 * is the owner. */
static inline uint32_t owner_index(const struct entry *entry, uint32_t name, uint32_t pos,
                                   uint64_t *seen) {
    *seen = atomic_load_explicit(&entry->owners[pos], memory_order_acquire);
    if (owner_name(*seen) == name) { /* the usual case: adjacent blocks of a prompt are written
                                        together */
        return pos;
    }
    for (pos = 0; pos < PREFIX_MAX_HOSTS; pos++) {
        *seen = atomic_load_explicit(&entry->owners[pos], memory_order_acquire);
        if (owner_name(*seen) == name) {
            break;
        }
    }
    return pos;
}

/* A host that is being added, block by block. */
struct writer {
    const struct prefix_table *table;
    struct area *area;
    uint32_t index;
    uint64_t age;
    uint32_t pos;   /* of the owner in the last block */
    bool crowded;   /* all owners of the last block were valid */
    uint32_t fresh; /* blocks of an age below this keep their stamps */
};

/* An owner that does not count any more. Returns: its position, or PREFIX_MAX_HOSTS. */
static uint32_t find_invalid_owner(const struct entry *entry, const struct writer *writer,
                                   uint64_t *seen) {
    for (uint32_t i = 0; i < PREFIX_MAX_HOSTS; i++) {
        *seen = atomic_load_explicit(&entry->owners[i], memory_order_relaxed);
        if (!is_owner_valid(writer->table, writer->area, writer->index, *seen)) {
            return i;
        }
    }
    return PREFIX_MAX_HOSTS;
}

/* The position for the owner: its own, else a free one, else one of an invalid owner, else that of
 * the block before: so one host loses its whole chain, and not several hosts a block each. */
static uint32_t choose_owner_index(const struct entry *entry, uint64_t owner, struct writer *writer,
                                   uint64_t *seen) {
    uint32_t pos = writer->pos, free = PREFIX_MAX_HOSTS;
    *seen = atomic_load_explicit(&entry->owners[pos], memory_order_relaxed);
    if (owner_name(*seen) == owner_name(owner)) { /* the usual case */
        return pos;
    }
    for (uint32_t i = PREFIX_MAX_HOSTS; i-- > 0;) {
        uint64_t other = atomic_load_explicit(&entry->owners[i], memory_order_relaxed);
        if (owner_name(other) == owner_name(owner)) {
            *seen = other;
            return i;
        }
        free = other == 0 ? i : free;
    }
    if (free < PREFIX_MAX_HOSTS) {
        *seen = 0;
        return free;
    }
    uint32_t invalid = writer->crowded ? PREFIX_MAX_HOSTS : find_invalid_owner(entry, writer, seen);
    if (invalid < PREFIX_MAX_HOSTS) {
        return invalid;
    }
    writer->crowded = true;
    *seen = atomic_load_explicit(&entry->owners[pos], memory_order_relaxed);
    return pos;
}

/* Returns: the owner that was replaced. */
static uint64_t add_owner(struct entry *entry, uint64_t seen, uint64_t tag, uint64_t owner,
                          struct writer *writer) {
    uint64_t other;
    writer->pos = choose_owner_index(entry, owner, writer, &other);
    if (seen != tag) { /* the entry is not from the current period */
        atomic_compare_exchange_strong_explicit(&entry->tag, &seen, tag, memory_order_relaxed,
                                                memory_order_relaxed);
    }
    uint64_t replaced = other;
    atomic_compare_exchange_strong_explicit(&entry->owners[writer->pos], &other, owner,
                                            memory_order_release, memory_order_relaxed);
    return replaced;
}

/* Returns: whether the block was sent to the host so recently that its stamp stays. Most of a
 * prompt that is sent again is read only so. */
static bool is_fresh(const struct entry *entry, uint64_t owner, const struct writer *writer,
                     uint64_t *other) {
    *other = atomic_load_explicit(&entry->owners[writer->pos], memory_order_relaxed);
    return owner_name(*other) == owner_name(owner) &&
           (uint32_t)owner - (uint32_t)*other < writer->fresh;
}

static void prefetch_bucket(const struct area *area, const struct prefix_key *key, uint32_t i) {
    if (i < key->n) {
        __builtin_prefetch(bucket_of(area, hash_of(key, i)));
    }
}

/* Returns: the owner of this block that was replaced; 0: the block is new. */
static inline uint64_t write_owner(struct writer *writer, uint64_t hash, uint64_t owner) {
    struct area *area = writer->area;
    uint64_t seen, other, tag = tag_of(hash) | writer->age;
    struct entry *entry = find_entry(area, hash, &seen);
    if (entry) {
        return seen == tag && is_fresh(entry, owner, writer, &other)
                   ? other
                   : add_owner(entry, seen, tag, owner, writer);
    }
    entry = find_oldest_entry(area, hash, writer->age, &seen);
    if (entry) {
        replace_entry(entry, seen, tag, owner);
    }
    return 0;
}

/* `n` more blocks are written to the area; *before: the number of those before. */
static struct writer begin_writing(const struct prefix_table *table, struct area *area,
                                   const struct prefix_key *key, uint64_t *before) {
    *before = atomic_fetch_add_explicit(&area->n_written, key->n, memory_order_relaxed);
    return (struct writer){
        .table = table,
        .area = area,
        .index = key->index,
        .age = *before / (capacity_of(area) / AGES_IN_TABLE) & AGE,
    };
}

/* By how much the clock advances where the block with this owner is sent again: from 0 to 1. */
static float advance_of(uint64_t replaced, uint32_t name, uint32_t clock, uint32_t capacity) {
    int32_t age = (int32_t)(clock - (uint32_t)replaced);
    if (owner_name(replaced) != name || age < 0 || (uint32_t)age >= capacity) {
        return owner_name(replaced) == name && age < 0 ? 0 : 1;
    }
    return (float)age / (float)capacity;
}

/* From the last block to the first: engines evict the end of a prompt before its beginning, without
 * which the end is of no use. The clock is ahead by all blocks while they are written, so that no
 * stamp is ahead of it. */
void prefix_table_add(struct prefix_table *table, uint32_t host, uint32_t capacity,
                      const struct prefix_key *key) {
    if (host == 0 || key->n == 0) {
        return;
    }
    uint64_t before;
    struct writer writer = begin_writing(table, &table->sent, key, &before);
    struct host_cache *cache = cache_of(table, key->index, host);
    uint32_t name = name_of(table, host);
    uint32_t clock = atomic_fetch_add_explicit(&cache->clock, key->n, memory_order_relaxed);
    float advance = 0;
    writer.pos = host % PREFIX_MAX_HOSTS;
    writer.fresh = capacity / FRESH_SHARE;
    atomic_store_explicit(&cache->capacity, capacity, memory_order_relaxed);
    for (uint32_t i = key->n; i-- > 0;) {
        prefetch_bucket(&table->sent, key, i - PREFETCH_DISTANCE);
        uint64_t owner = owner_make(name, clock + (uint32_t)advance);
        uint64_t replaced = write_owner(&writer, hash_of(key, i), owner);
        advance += advance_of(replaced, name, clock, capacity);
    }
    uint32_t n_advanced = (uint32_t)(advance + 0.5f);
    n_advanced = n_advanced < key->n ? n_advanced : key->n;
    atomic_fetch_sub_explicit(&cache->clock, key->n - n_advanced, memory_order_relaxed);
}

/* ---- blocks in flight ------------------------------------------------------------------------ */

/* Of block `i`: the stamps increase by one. */
static uint64_t held_owner(const struct prefix_hold *hold, uint32_t i) {
    return owner_make(owner_name(hold->owner), (uint32_t)hold->owner + i);
}

void prefix_table_hold(struct prefix_table *table, uint32_t host, const struct prefix_key *key,
                       struct prefix_hold *out) {
    *out = (struct prefix_hold){.key = *key};
    out->key.n = 0;
    if (host == 0 || key->n == 0) {
        return;
    }
    uint64_t before;
    struct writer writer = begin_writing(table, &table->held, key, &before);
    out->owner = owner_make(name_of(table, host), (uint32_t)before);
    out->key.n = key->n;
    atomic_fetch_add_explicit(&table->n_holds, 1, memory_order_relaxed);
    writer.pos = (uint32_t)before % PREFIX_MAX_HOSTS;
    for (uint32_t i = 0; i < key->n; i++) {
        prefetch_bucket(&table->held, key, i + PREFETCH_DISTANCE);
        (void)write_owner(&writer, hash_of(key, i), held_owner(out, i));
    }
}

/* A block that another request to the same host has written since stays. */
void prefix_table_unhold(struct prefix_table *table, struct prefix_hold *hold) {
    struct area *area = &table->held;
    const struct prefix_key *key = &hold->key;
    uint32_t name = owner_name(hold->owner), pos = 0;
    if (key->n > 0) {
        atomic_fetch_sub_explicit(&table->n_holds, 1, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < key->n; i++) {
        uint64_t seen, own = held_owner(hold, i);
        prefetch_bucket(area, key, i + PREFETCH_DISTANCE);
        struct entry *entry = find_entry(area, hash_of(key, i), &seen);
        pos = entry ? owner_index(entry, name, pos, &seen) : 0;
        if (entry && pos < PREFIX_MAX_HOSTS && seen == own) {
            atomic_compare_exchange_strong_explicit(&entry->owners[pos], &seen, 0,
                                                    memory_order_release, memory_order_relaxed);
        }
        pos = pos < PREFIX_MAX_HOSTS ? pos : 0;
    }
    hold->key.n = 0;
}

/* ---- matches --------------------------------------------------------------------------------- */

/* A block stands for all those before it, so the last block that a host was sent says how much of
 * the prompt it has. Few entries are read: that of the last block, and by bisection that of the
 * last block with a further host. An entry that was replaced does not end a match so, and neither
 * does a beginning that more hosts were sent than an entry has owners. */
struct search {
    const struct prefix_table *table;
    const struct prefix_key *key;
    bool none_held; /* no blocks are in flight */
    struct prefix_hit *hits;
    uint32_t n;
};

static bool is_tag_unchanged(const struct entry *entry, uint64_t tag) {
    return ((atomic_load_explicit(&entry->tag, memory_order_relaxed) ^ tag) & ~AGE) == 0;
}

static bool is_listed(const struct search *search, uint32_t host) {
    for (uint32_t i = 0; i < search->n; i++) {
        if (search->hits[i].host == host) {
            return true;
        }
    }
    return false;
}

/* Lists the hosts of block `i` that are not listed yet. */
static void read_owners(struct search *search, const struct area *area, uint32_t i) {
    uint64_t tag;
    uint32_t n_before = search->n;
    const struct entry *entry = find_entry(area, hash_of(search->key, i), &tag);
    for (uint32_t k = 0; entry && k < PREFIX_MAX_HOSTS && search->n < PREFIX_MAX_HOSTS; k++) {
        uint64_t owner = atomic_load_explicit(&entry->owners[k], memory_order_acquire);
        if (is_owner_valid(search->table, area, search->key->index, owner) &&
            !is_listed(search, owner_name(owner) >> 16)) {
            search->hits[search->n++] = (struct prefix_hit){owner_name(owner) >> 16, i + 1};
        }
    }
    if (entry && !is_tag_unchanged(entry, tag)) {
        search->n = n_before; /* the entry was replaced meanwhile */
    }
}

/* The same, sent or in flight. Returns: whether there are any. */
static bool list_hosts_of(struct search *search, uint32_t i) {
    uint32_t n_before = search->n;
    read_owners(search, &search->table->sent, i);
    if (!search->none_held) {
        read_owners(search, &search->table->held, i);
    }
    return search->n > n_before;
}

/* Whether block `*i` has hosts that are not listed; else, where its entry may be lost, the one
 * before it, which is then `*i`. */
static bool has_further_hosts(struct search *search, uint32_t *i) {
    uint32_t n_before = search->n, at = *i;
    bool has = list_hosts_of(search, at) || (at > 0 && list_hosts_of(search, --at));
    search->n = n_before;
    *i = has ? at : *i;
    return has;
}

/* The last block before `end`, which is above 0, that has hosts that are not listed. Returns: end:
 * there is none. */
static uint32_t find_last_block(struct search *search, uint32_t end) {
    uint32_t first = end > 1 ? 1 : 0, after = end;
    if (!has_further_hosts(search, &first)) {
        return end;
    }
    while (after - first > 1) {
        uint32_t middle = first + (after - first) / 2, at = middle;
        if (has_further_hosts(search, &at) && at > first) {
            first = at;
        } else {
            after = middle;
        }
    }
    return first;
}

uint32_t prefix_table_find(const struct prefix_table *table, const struct prefix_key *key,
                           struct prefix_hit out[PREFIX_MAX_HOSTS]) {
    struct search search = {.table = table, .key = key, .hits = out};
    search.none_held = atomic_load_explicit(&table->n_holds, memory_order_relaxed) == 0;
    for (uint32_t end = key->n; end > 0 && search.n < PREFIX_MAX_HOSTS;) {
        uint32_t last = end - 1;
        if (!list_hosts_of(&search, last)) {
            last = last > 0 ? find_last_block(&search, last) : end;
            if (last >= end - 1) {
                break;
            }
            (void)list_hosts_of(&search, last);
        }
        end = last;
    }
    return search.n;
}
