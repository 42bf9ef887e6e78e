/* All pools of the process by name, and their index by match (match.h). Pools are added and removed
 * with the configuration: one that stays, by its name, keeps the state of its endpoints; a removed
 * one gets no new requests, and is freed after its last request has ended.
 *
 * The list of pools is immutable and replaced as a whole. Each worker has a reader of the set,
 * which creates its reader of a pool (pool.h) at the first request for that pool: until then a pool
 * costs a worker one pointer.
 *
 * A configuration without a list of pools is one pool without a name, which takes all requests. */
#ifndef SLUICE_PICK_POOL_SET_H
#define SLUICE_PICK_POOL_SET_H

#include "pick/pool/match.h"
#include "pick/pool/pool.h"

/* The configuration of all pools. */
struct pool_specs {
    struct pool_spec **items; /* from malloc; in the order of the file */
    size_t n;
    bool is_list; /* the pools have names; otherwise there is one, without */
};

/* NULL items are allowed; zeroes `specs`. */
void pool_specs_free(struct pool_specs *specs);
/* Takes the spec. */
void pool_specs_add(struct pool_specs *specs, struct pool_spec *spec);
/* Checks that no two pools match the same requests. Returns: as pool_index_build. */
enum status pool_specs_check(const struct pool_specs *specs, struct pool_match_conflict *conflict,
                             struct error *err) SLUICE_MUST_USE;

struct pool_entry {
    struct pool *pool;
    struct str name;         /* len 0: the only pool */
    struct pool_match match; /* conditions on its requests */
    size_t slot;             /* a small number, unique among the pools while this one exists */
};

/* The pools at one time. Immutable and reference-counted; it holds its pools. Thread: any. */
struct pool_list {
    _Atomic uint32_t n_refs;
    uint64_t generation; /* from 1; 0: nothing was loaded yet */
    struct arena *arena;
    struct pool_entry *entries;        /* in the order of the file */
    const struct pool_entry **by_name; /* sorted */
    size_t n;
    size_t n_slots; /* above every slot */
    bool is_list;
    struct pool_index index; /* of indices into entries */
};

void pool_list_ref(struct pool_list *list);
void pool_list_unref(struct pool_list *list);
/* Returns: NULL when there is no such pool. */
const struct pool_entry *pool_list_find(const struct pool_list *list, struct str name);

/* ---- the set --------------------------------------------------------------------------------- */

struct pool_set;

/* Creates a set without pools, of generation 0. Owns: *out until pool_set_free. */
enum status pool_set_new(struct pool_set **out, struct error *err) SLUICE_MUST_USE;
/* After every reader was freed. NULL is allowed. */
void pool_set_free(struct pool_set *set);

/* Attaches the prefix table of all pools; before the first update. Owns: takes a reference. */
void pool_set_attach_prefix_table(struct pool_set *set, struct prefix_table *table);

/* Replaces the pools by these. Returns: ST_NO_MEMORY, and as pool_index_build; the list is
 * unchanged (when out of memory some of its pools may be updated already). Owns: takes the items in
 * any case. Thread: any; updates run one after the other. Refresh the readers soon after. */
enum status pool_set_update(struct pool_set *set, struct pool_specs *specs,
                            struct error *err) SLUICE_MUST_USE;

/* Of the newest list; 0: nothing was loaded yet. Thread: any. */
uint64_t pool_set_generation(const struct pool_set *set);
/* The newest list, with a reference for the caller. Thread: any. */
struct pool_list *pool_set_acquire_list(struct pool_set *set);
/* The sums over all pools; the generation is the set's. Thread: any. */
void pool_set_get_stats(struct pool_set *set, struct pool_stats *out);

/* ---- readers --------------------------------------------------------------------------------- */

struct pool_set_reader;

/* Owns: *out until pool_set_reader_free. Thread: any; then one at a time. */
enum status pool_set_reader_new(struct pool_set *set, struct pool_set_reader **out,
                                struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. Its readers of pools live until their last reference is dropped. */
void pool_set_reader_free(struct pool_set_reader *reader);

/* Loads the newest list, valid until the next refresh. Never fails: when out of memory it is the
 * previous one. */
const struct pool_list *pool_set_reader_refresh(struct pool_set_reader *reader);
/* The same, and refreshes its readers of pools, so that old snapshots can be freed. */
void pool_set_reader_refresh_all(struct pool_set_reader *reader);
/* This thread's reader of a pool in the list last loaded. Returns: NULL when out of memory. Owns:
 * the set's reader; valid until the next refresh, unless the caller takes a reference. */
struct pool_reader *pool_set_reader_get(struct pool_set_reader *reader,
                                        const struct pool_entry *entry);
/* The reader of an empty pool with default settings, for requests that no pool matches. */
struct pool_reader *pool_set_reader_get_empty(struct pool_set_reader *reader);

/* ---- data for each pool ---------------------------------------------------------------------- */

/* A caller's data for each pool of a set: an array by the slots of the list, in which a pool that
 * stays keeps its item when the list is updated. Thread: one at a time. */

/* First member of each item; items are allocated with calloc. */
struct per_pool {
    struct pool *pool;
    uint64_t generation; /* of the pool's snapshot that the caller has processed; 0: none */
};

/* Zeroed memory is empty. */
struct per_pool_table {
    struct per_pool **items; /* by slot; NULL: no such pool */
    size_t n_slots;
    uint64_t generation; /* of the list */
    size_t item_bytes;
    void (*free_item)(void *user, struct per_pool *item); /* frees the item of a pool that was
                                                             removed */
    void *user;
};

/* Updates the items to those of the list; new ones are zeroed. Returns: false when out of memory;
 * some items are then missing until the next call. */
bool per_pool_table_sync(struct per_pool_table *table,
                         const struct pool_list *list) SLUICE_MUST_USE;
/* Frees all items. */
void per_pool_table_fini(struct per_pool_table *table);

#endif
