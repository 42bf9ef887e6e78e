/* A pool snapshot: the members of a pool and its configuration at one time. Immutable, so that any
 * number of threads read it without locks; an endpoint's changing state (in-flight count,
 * readiness) is in struct endpoint.
 *
 * Snapshots are reference-counted: the pool holds the newest, each reader the one it last loaded.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_SNAPSHOT_H
#define SLUICE_PICK_POOL_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pick/pool/endpoint/attribute.h"
#include "pick/pool/endpoint/endpoint.h"
#include "pick/pool/endpoint/load.h"
#include "pick/pool/prefix/producer.h"
#include "pick/pool/spec.h"

/* The most recent changes of members, in a ring: a view (view.h) follows it and reads only the
 * changed members again. A view that is so late that entries were overwritten detects it and reads
 * all members.
 *
 * Thread: writing under the pool's lock; reading any. */
struct pool_changes {
    _Atomic uint64_t n; /* changes since the snapshot was made */
    uint32_t mask;      /* number of entries, a power of two, less 1 */
    /* Upper half: the lower half of the change's number, counted from 1; lower half: the member. */
    _Atomic uint64_t *entries;
};

/* Call after the change itself. */
static inline void pool_changes_add(struct pool_changes *changes, uint32_t member) {
    uint64_t n = atomic_load_explicit(&changes->n, memory_order_relaxed);
    atomic_store_explicit(&changes->entries[n & changes->mask], (n + 1) << 32 | member,
                          memory_order_relaxed);
    atomic_store_explicit(&changes->n, n + 1, memory_order_release);
}

/* A member read afterwards has all changes up to this number. */
static inline uint64_t pool_changes_count(const struct pool_changes *changes) {
    return atomic_load_explicit(&changes->n, memory_order_acquire);
}

/* The member of change `i`, counted from 0. Returns: false when the entry was overwritten. */
static inline bool pool_changes_get(const struct pool_changes *changes, uint64_t i,
                                    uint32_t *member) {
    uint64_t entry =
        atomic_load_explicit(&changes->entries[i & changes->mask], memory_order_relaxed);
    *member = (uint32_t)entry;
    return entry >> 32 == (uint32_t)(i + 1);
}

/* An endpoint in this snapshot. */
struct pool_member {
    struct endpoint_address address;
    struct endpoint *endpoint;
    struct pool_labels labels;
    struct pool_endpoint_name name;
    struct endpoint_address node; /* as in the spec */
    uint32_t hash;                /* of the address */
    uint16_t profiles; /* a bit for each profile of the spec's handler that may choose it */
    uint8_t stages;    /* with a detector: those that it counts in (flow/saturation.h) */
};

/* The entry of a model name. */
struct pool_model_entry {
    struct str name;
    const struct pool_model *model;     /* NULL: only a rewrite has the name */
    const struct pool_rewrite *rewrite; /* NULL: no rewrite has the name */
};

struct rollout_index;
struct session_table;

struct pool_snapshot {
    _Atomic uint32_t n_refs;
    uint64_t generation; /* from 1, one more at each update; 0: nothing was loaded yet */
    const struct pool_spec *spec;
    struct pool_member *members; /* sorted by address, each address once */
    uint32_t n_members;
    struct load_cell *loads; /* of each member; changes (pick/pool/endpoint/load.h) */
    struct load_adapters *adapters;
    /* The attributes that plugins read, and the cells of each member, one after the other: those of
     * member i begin at i * n_attributes; changes. */
    const struct attribute_key *attribute_keys;
    uint32_t n_attributes;
    struct attribute_cell *attributes;
    /* Of plugins of session affinity, and by member its number in them; NULL without tables. */
    struct session_table *sessions[SESSION_TABLES_MAX];
    uint32_t n_sessions;
    uint64_t *session_numbers;
    struct pool_changes changes; /* of members' loads, requests and readiness; changes */
    /* A bit for each member: it is ready and not avoided. Under the pool's lock; changes. */
    uint64_t *preferred;
    uint32_t slots_mask; /* number of slots, a power of two, less 1 */
    uint32_t *slots;     /* hash table by address: member + 1; 0: free */
    /* By an endpoint's host number in the prefix table, less the lowest one of the members: member
     * + 1; 0: none. All pools share the prefix table, which gives a pool's endpoints adjacent
     * numbers. */
    uint32_t first_host, n_hosts;
    uint32_t *hosts;
    const struct pool_model_entry *names; /* sorted */
    size_t n_names;
    const struct pool_rewrite *default_rewrite; /* for names without an entry, or NULL */
    bool models_matter;                         /* the configuration treats models differently */
    const struct pool_objective **objectives;   /* sorted by name */
    size_t n_objectives;
    struct rollout_index *rollout; /* with spec->rollout (pick/pool/rollout.h) */
    /* Of all priorities that requests may have, the highest first; NULL: each may use the whole
     * capacity. */
    struct usage_ceiling *ceilings;
    size_t n_ceilings;
};

/* For a caller that holds a reference already. */
void pool_snapshot_ref(struct pool_snapshot *snapshot);
/* The last reference frees the snapshot; its endpoints stay the pool's. */
void pool_snapshot_unref(struct pool_snapshot *snapshot);

/* Returns: NULL when no member has the address. */
const struct pool_member *pool_snapshot_find(const struct pool_snapshot *snapshot,
                                             const struct endpoint_address *address);
/* The members with this IP and any port: `*n` of them, adjacent. */
const struct pool_member *pool_snapshot_find_ip(const struct pool_snapshot *snapshot,
                                                const struct endpoint_address *ip, size_t *n);
/* The members that an item of a subset matches, whose port may be 0 (any): `*n` of them,
 * adjacent. */
const struct pool_member *pool_snapshot_find_listed(const struct pool_snapshot *snapshot,
                                                    const struct endpoint_address *item, size_t *n);
/* The member's load report; empty where none is valid at `now_ns`. */
void pool_snapshot_get_load(const struct pool_snapshot *snapshot, const struct pool_member *member,
                            uint64_t now_ns, struct endpoint_load *out);
/* Returns: NULL when no model and no rewrite has this name. */
const struct pool_model_entry *pool_snapshot_find_name(const struct pool_snapshot *snapshot,
                                                       struct str name);
/* Whether a request for this model may be sent on under another name. */
bool pool_snapshot_renames_model(const struct pool_snapshot *snapshot, struct str name);
/* Returns: NULL when there is no such objective. */
const struct pool_objective *pool_snapshot_find_objective(const struct pool_snapshot *snapshot,
                                                          struct str name);

/* Internal to pool.c. Makes a snapshot of the spec's endpoints that its selector matches, sorted,
 * each address once (the first in the spec), without their struct endpoint. The spec then belongs
 * to the snapshot, which has one reference. On failure the spec stays the caller's. */
enum status pool_snapshot_new(struct pool_spec *spec, uint64_t generation,
                              struct pool_snapshot **out, struct error *err) SLUICE_MUST_USE;

#endif
