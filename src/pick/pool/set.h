/* All pools of a process, by name, and which of them takes a request (match.h). Pools come and
 * go with the configuration: one that stays, by its name, keeps all that is known of its endpoints;
 * one that has gone is given no new requests, and lives until those that it has have ended.
 *
 * The list of pools is immutable and swapped whole. Each worker has a reader of the set, which
 * makes its reader of a pool (pool.h) when the first request for that one comes: a pool that a
 * worker never serves costs it a pointer.
 *
 * A configuration without a list of pools is one pool without a name, which takes all requests. */
#ifndef SLUICE_PICK_POOL_SET_H
#define SLUICE_PICK_POOL_SET_H

#include "pick/pool/match.h"
#include "pick/pool/pool.h"

/* What all the pools should be. */
struct pool_specs {
    struct pool_spec **items; /* from malloc; in the file's order */
    size_t n;
    bool is_list; /* each has a name and is told apart by it; otherwise it is one */
};

/* NULL items are allowed; zeroed afterwards. */
void pool_specs_free(struct pool_specs *specs);
/* Takes the spec, also on failure. Returns: ST_NO_MEMORY. */
enum status pool_specs_add(struct pool_specs *specs, struct pool_spec *spec, struct error *err)
    __attribute__((warn_unused_result));
/* Can requests be told to belong to one of them? Returns: as pool_index_build. */
enum status pool_specs_check(const struct pool_specs *specs, struct pool_match_conflict *conflict,
                             struct error *err) __attribute__((warn_unused_result));

struct pool_entry {
    struct pool *pool;
    struct str name;         /* len 0 without a list */
    struct pool_match match; /* which requests it is for */
    size_t slot; /* a small number that is no other pool's as long as this one is there */
};

/* The pools as they were at one time. Immutable and counted; it holds its pools. Thread: any. */
struct pool_list {
    _Atomic uint32_t n_refs;
    uint64_t generation; /* from 1; 0: nothing was ever loaded */
    struct arena *arena;
    struct pool_entry *entries;        /* in the file's order */
    const struct pool_entry **by_name; /* sorted */
    size_t n;
    size_t n_slots; /* above each slot */
    bool is_list;
    struct pool_index index; /* its numbers are those of entries */
};

void pool_list_ref(struct pool_list *list);
void pool_list_unref(struct pool_list *list);
/* Returns: NULL when there is no such pool. */
const struct pool_entry *pool_list_find(const struct pool_list *list, struct str name);

/* ---- the set --------------------------------------------------------------------------------- */

struct pool_set;

/* Without pools, of generation 0. Owns: *out until pool_set_free. */
enum status pool_set_new(struct pool_set **out, struct error *err)
    __attribute__((warn_unused_result));
/* Every reader of it is gone. NULL is allowed. */
void pool_set_free(struct pool_set *set);

/* Where it is remembered, of all its pools, who was sent which prompts; before the first update.
 * Owns: a reference. */
void pool_set_attach_prefix_table(struct pool_set *set, struct prefix_table *table);

/* From now on the pools are these. Returns: ST_NO_MEMORY, and as pool_index_build; the list is as
 * before (out of memory some of its pools may be what is new already). Owns: takes the items,
 * whatever comes of it. Thread: any; one update waits for the other. Let the readers look soon. */
enum status pool_set_update(struct pool_set *set, struct pool_specs *specs, struct error *err)
    __attribute__((warn_unused_result));

/* Of the newest list; 0: nothing has been loaded yet. Thread: any. */
uint64_t pool_set_generation(const struct pool_set *set);
/* The newest list, with a reference for the caller. Thread: any. */
struct pool_list *pool_set_acquire_list(struct pool_set *set);
/* The numbers of all pools, added up; the generation is the set's. Thread: any. */
void pool_set_get_stats(struct pool_set *set, struct pool_stats *out);

/* ---- reading --------------------------------------------------------------------------------- */

struct pool_set_reader;

/* Owns: *out until pool_set_reader_free. Thread: any; then one at a time. */
enum status pool_set_reader_new(struct pool_set *set, struct pool_set_reader **out,
                                struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. Its readers of pools live as long as somebody has a reference to them. */
void pool_set_reader_free(struct pool_set_reader *reader);

/* The newest list: valid until this reader looks again. Never fails: without memory it is the one
 * before. */
const struct pool_list *pool_set_reader_refresh(struct pool_set_reader *reader);
/* The same, and each of its readers of pools looks: what is old can be freed. */
void pool_set_reader_refresh_all(struct pool_set_reader *reader);
/* This thread's reader of a pool of the list that was looked at last. Returns: NULL when out of
 * memory. Owns: the set's reader; valid until that looks again, unless the caller takes a
 * reference. */
struct pool_reader *pool_set_reader_get(struct pool_set_reader *reader,
                                        const struct pool_entry *entry);
/* The reader of an empty pool with the defaults: for requests that no pool takes. */
struct pool_reader *pool_set_reader_get_empty(struct pool_set_reader *reader);

#endif
