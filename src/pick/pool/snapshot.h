/* A pool as it was at one time: which endpoints are in it, and what its configuration says.
 * Immutable, so any number of threads read it without locks; what changes of an endpoint (its
 * requests in flight, its readiness) is in struct endpoint.
 *
 * A snapshot is counted: the pool holds the newest, each reader the one it looked at last, and who
 * needs one for longer takes a reference of its own.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_SNAPSHOT_H
#define SLUICE_PICK_POOL_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pick/pool/endpoint/endpoint.h"
#include "pick/pool/endpoint/load.h"
#include "pick/pool/spec.h"

/* The list of the members of a snapshot of which something changed, the newest of them: who keeps a
 * copy of what is known of all members reads again only those. An old entry is overwritten by a new
 * one; whoever comes too late for an entry sees it, and reads all.
 *
 * Thread: one at a time writes, under the pool's lock; anyone reads. */
struct pool_changes {
    _Atomic uint64_t n; /* since the snapshot was made */
    uint32_t mask;      /* of the entries: a power of two less 1 */
    /* In the upper half the lower half of its number, counted from 1; in the lower the member. */
    _Atomic uint64_t *entries;
};

/* After the change itself. */
static inline void pool_changes_add(struct pool_changes *changes, uint32_t member) {
    uint64_t n = atomic_load_explicit(&changes->n, memory_order_relaxed);
    atomic_store_explicit(&changes->entries[n & changes->mask], (n + 1) << 32 | member,
                          memory_order_relaxed);
    atomic_store_explicit(&changes->n, n + 1, memory_order_release);
}

/* Whoever reads a member afterwards sees all changes up to this one. */
static inline uint64_t pool_changes_count(const struct pool_changes *changes) {
    return atomic_load_explicit(&changes->n, memory_order_acquire);
}

/* The member of change `i`, counted from 0. Returns: false when it was overwritten. */
static inline bool pool_changes_get(const struct pool_changes *changes, uint64_t i,
                                    uint32_t *member) {
    uint64_t entry =
        atomic_load_explicit(&changes->entries[i & changes->mask], memory_order_relaxed);
    *member = (uint32_t)entry;
    return entry >> 32 == (uint32_t)(i + 1);
}

/* An endpoint, and what this snapshot says of it. */
struct pool_member {
    struct endpoint_address address;
    struct endpoint *endpoint;
    struct pool_labels labels;
    uint32_t hash; /* of its address */
};

/* What a name of a model means. */
struct pool_model_entry {
    struct str name;
    const struct pool_model *model;     /* NULL: there is only a rewrite for it */
    const struct pool_rewrite *rewrite; /* NULL: there is none for it */
};

struct pool_snapshot {
    _Atomic uint32_t n_refs;
    uint64_t generation; /* from 1, one more at each update; 0: nothing was ever loaded */
    const struct pool_spec *spec;
    struct pool_member *members; /* in the order of their addresses, each address once */
    uint32_t n_members;
    struct load_cell *loads; /* of each member; not immutable (pick/pool/endpoint/load.h) */
    struct load_adapters *adapters;
    struct pool_changes changes; /* of members' loads, requests and readiness; not immutable */
    uint32_t slots_mask;         /* a power of two less 1 */
    uint32_t *slots;             /* by the address's hash: member + 1; 0: free */
    /* By an endpoint's number in the table of prompts, from the lowest that a member has: member +
     * 1; 0: none. All pools share the table, so that the numbers of one are near each other. */
    uint32_t first_host, n_hosts;
    uint32_t *hosts;
    const struct pool_model_entry *names; /* sorted */
    size_t n_names;
    const struct pool_rewrite *default_rewrite; /* the rewrite for names that nothing knows, or
                                                   NULL */
    bool models_matter; /* which model a request names can make a difference */
    const struct pool_objective **objectives; /* sorted by name */
    size_t n_objectives;
};

/* One more for somebody who can reach it already. */
void pool_snapshot_ref(struct pool_snapshot *snapshot);
/* The last one frees it; its endpoints may still be the pool's. */
void pool_snapshot_unref(struct pool_snapshot *snapshot);

/* Returns: NULL when it is not in the pool. */
const struct pool_member *pool_snapshot_find(const struct pool_snapshot *snapshot,
                                             const struct endpoint_address *address);
/* The members with this IP and any port: `*n` of them, one after the other. */
const struct pool_member *pool_snapshot_find_ip(const struct pool_snapshot *snapshot,
                                                const struct endpoint_address *ip, size_t *n);
/* The members that an item of a subset means, whose port may be 0: `*n` of them, one after the
 * other. */
const struct pool_member *pool_snapshot_find_listed(const struct pool_snapshot *snapshot,
                                                    const struct endpoint_address *item, size_t *n);
/* What the member has said of its load, if that counts still. */
void pool_snapshot_get_load(const struct pool_snapshot *snapshot, const struct pool_member *member,
                            uint64_t now_ns, struct endpoint_load *out);
/* Returns: NULL when there is neither a model nor a rewrite of this name. */
const struct pool_model_entry *pool_snapshot_find_name(const struct pool_snapshot *snapshot,
                                                       struct str name);
/* May a request for this model be sent on under another name? */
bool pool_snapshot_renames_model(const struct pool_snapshot *snapshot, struct str name);
/* Returns: NULL when there is no such objective. */
const struct pool_objective *pool_snapshot_find_objective(const struct pool_snapshot *snapshot,
                                                          struct str name);

/* For update.c. Makes a snapshot of the spec's endpoints that its selector takes, sorted, each
 * address once (the first in the spec's order), without their struct endpoint. From then
 * on the spec is the snapshot's. Its count is 1. On failure the spec stays the caller's. */
enum status pool_snapshot_new(struct pool_spec *spec, uint64_t generation,
                              struct pool_snapshot **out, struct error *err)
    __attribute__((warn_unused_result));

#endif
