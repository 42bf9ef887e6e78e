/* What is known of a cluster's objects: those that a pool is made of, as the API server tells them
 * (watch.h), and what an InferencePool of one name and all that refers to it come to as a
 * pool's spec. Without I/O: events in, endpoints and models out.
 *
 * Of pods what matters is kept (pod.h), of the others metadata, spec and status. What makes no
 * sense is logged once for each state it is in, and is as good as not there; nothing else is lost
 * by it. Heartbeats, changes of a status and pods of others change nothing that is counted as a
 * change.
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
    const char *group; /* "": the core's */
    const char *version;
    const char *resource; /* as paths have it: "inferencepools" */
    const char *kind;
};

extern const struct kube_kind_info KUBE_KINDS[N_KUBE_KINDS];

/* An InferencePool, of one group or the other. */
bool kube_kind_is_pool(enum kube_kind kind);

struct kube_store;

struct kube_store_options {
    const char *name_space; /* objects of others are left alone */
    const char *pool;       /* the InferencePool's name */
    const char *group;      /* and its group; NULL: it is found out, the newer one first */
};

/* The texts must stay as long as the store. Returns: ST_NO_MEMORY. Owns: *out until
 * kube_store_free. */
enum status kube_store_new(const struct kube_store_options *options, struct kube_store **out,
                           struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. */
void kube_store_free(struct kube_store *store);

/* ---- what is heard --------------------------------------------------------------------------- */

/* An object is there, or is another than before. */
void kube_store_put(struct kube_store *store, enum kube_kind kind, const struct doc_node *object);
/* It is there no more. One that was not there is left alone. */
void kube_store_remove(struct kube_store *store, enum kube_kind kind,
                       const struct doc_node *object);
/* All objects of a kind follow; again, if they did not come to an end. */
void kube_store_list_begin(struct kube_store *store, enum kube_kind kind);
/* They were all: those that were not among them are there no more. `served`: the cluster has such
 * objects at all. */
void kube_store_list_end(struct kube_store *store, enum kube_kind kind, bool served);
/* A kind that can't be read, and without which a pool can be (all but pods; of the two groups of
 * pools one is enough): as if it were not served, for as long. */
void kube_store_skip_kind(struct kube_store *store, enum kube_kind kind);

/* ---- what is known --------------------------------------------------------------------------- */

/* One more for each change of what kube_store_add_to_spec says. */
uint64_t kube_store_version(const struct kube_store *store);
/* Every kind was told whole at least once. */
bool kube_store_is_synced(const struct kube_store *store);
/* Was this kind told, and has the cluster such objects? */
bool kube_store_is_served(const struct kube_store *store, enum kube_kind kind);
/* There is an InferencePool that can be used. */
bool kube_store_has_pool(const struct kube_store *store);

/* Puts what is known into the spec: the pool's name, an endpoint for each port of each pod that is
 * ready, models, objectives and rewrites, behind those it has, which count first. A spec that does
 * not say itself what becomes of unknown models refuses them if the cluster serves InferenceModel.
 * Returns: ST_NO_MEMORY. */
enum status kube_store_add_to_spec(const struct kube_store *store, struct pool_spec *spec,
                                   struct error *err) __attribute__((warn_unused_result));

/* A change of an object's status. */
struct kube_patch {
    enum kube_kind kind;
    struct str name; /* NUL-terminated */
    struct str body; /* a JSON merge patch */
};
/* The changes that the API expects of the picker, and that are not made yet: each model, objective
 * and rewrite of the pool says whether it is accepted. `now`: "2026-01-31T23:59:59Z". Returns: how
 * many are at *out, in the arena; fewer when out of memory. */
size_t kube_store_patches(const struct kube_store *store, struct arena *arena, const char *now,
                          struct kube_patch **out);

struct kube_kind_counts {
    size_t n_objects;  /* of a kind */
    size_t n_matching; /* pods that the selector takes, others that refer to the pool */
    size_t n_usable;   /* of ours: pods that are ready */
    size_t n_invalid;  /* objects that can't be used, whoever's they are */
    bool known, served;
};
void kube_store_count(const struct kube_store *store, enum kube_kind kind,
                      struct kube_kind_counts *out);
/* The group of the InferencePool that is used; NULL: there is none. */
const char *kube_store_group(const struct kube_store *store);

#endif
