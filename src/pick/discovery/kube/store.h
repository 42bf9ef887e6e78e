/* The objects of a cluster that make up a pool: events of the API server in (watch.h), the spec of
 * the InferencePool with the configured name, and of the objects that refer to it, out. Without
 * I/O.
 *
 * Pods are reduced to what a pool needs (pod.h), other objects to metadata, spec and status. An
 * invalid object is logged once for each version, and ignored. Heartbeats, changes of a status and
 * other pools' objects do not change the store's version.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_STORE_H
#define SLUICE_PICK_DISCOVERY_KUBE_STORE_H

#include "core/base/doc/doc.h"
#include "pick/discovery/kube/pod.h"
#include "pick/pool/spec.h"

/* ---- kinds of objects (kind.def) ---- */

enum kube_kind {
#define KUBE_KIND(id, group, version, resource, kind) KUBE_##id,
#include "pick/discovery/kube/kind.def"
#undef KUBE_KIND
    N_KUBE_KINDS,
};

struct kube_kind_info {
    const char *group; /* "": the core group */
    const char *version;
    const char *resource; /* in paths: "inferencepools" */
    const char *kind;
};

extern const struct kube_kind_info KUBE_KINDS[N_KUBE_KINDS];

/* Is the kind InferencePool, of either group? */
bool kube_kind_is_pool(enum kube_kind kind);

struct kube_store;

struct kube_store_options {
    const char *name_space; /* objects of other namespaces are ignored */
    const char *pool;       /* the InferencePool's name */
    const char *group;      /* its group; NULL: the newer one that is served */
};

/* The options' texts must live as long as the store. Returns: ST_NO_MEMORY. Owns: *out until
 * kube_store_free. */
enum status kube_store_new(const struct kube_store_options *options, struct kube_store **out,
                           struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void kube_store_free(struct kube_store *store);

/* ---- events ---------------------------------------------------------------------------------- */

/* An object was added or modified. */
void kube_store_put(struct kube_store *store, enum kube_kind kind, const struct doc_node *object);
/* An object was deleted. An unknown one is ignored. */
void kube_store_remove(struct kube_store *store, enum kube_kind kind,
                       const struct doc_node *object);
/* A list of all objects of a kind begins; also again after an incomplete one. */
void kube_store_list_begin(struct kube_store *store, enum kube_kind kind);
/* The list is complete: objects that it did not have are removed. `served`: the cluster has this
 * kind. */
void kube_store_list_end(struct kube_store *store, enum kube_kind kind, bool served);
/* The kind can't be read, and counts as not served for as long. Not for pods; of the two groups of
 * pools one is enough. */
void kube_store_skip_kind(struct kube_store *store, enum kube_kind kind);

/* ---- queries --------------------------------------------------------------------------------- */

/* Counts the changes of the result of kube_store_add_to_spec. */
uint64_t kube_store_version(const struct kube_store *store);
/* Each kind has been listed at least once. */
bool kube_store_is_synced(const struct kube_store *store);
/* The kind has been listed, and the cluster serves it. */
bool kube_store_is_served(const struct kube_store *store, enum kube_kind kind);
/* There is a valid InferencePool. */
bool kube_store_has_pool(const struct kube_store *store);

/* Adds to the spec: the pool's name, an endpoint for each port of each ready pod, models,
 * objectives and rewrites, after those of the spec, which have precedence. If the spec does not set
 * unknown_models, unknown models are rejected when the cluster serves InferenceModel. */
void kube_store_add_to_spec(const struct kube_store *store, struct pool_spec *spec);

/* A change of an object's status. */
struct kube_patch {
    enum kube_kind kind;
    struct str name; /* NUL-terminated */
    struct str body; /* a JSON merge patch */
};
/* Lists the status changes that are missing: each model, objective and rewrite of the pool gets a
 * condition Accepted. `now`: "2026-01-31T23:59:59Z". Returns: how many are at *out, in the arena;
 * fewer when out of memory. */
size_t kube_store_patches(const struct kube_store *store, struct arena *arena, const char *now,
                          struct kube_patch **out);

struct kube_kind_counts {
    size_t n_objects;  /* of the kind */
    size_t n_matching; /* pods that the selector matches; other objects that refer to the pool */
    size_t n_usable;   /* of those that match: pods that are ready */
    size_t n_invalid;  /* invalid objects, of any pool */
    bool known, served;
};
void kube_store_count(const struct kube_store *store, enum kube_kind kind,
                      struct kube_kind_counts *out);
/* The group of the InferencePool in use; NULL: none. */
const char *kube_store_group(const struct kube_store *store);

#endif
