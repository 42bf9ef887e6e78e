/* What the files of the store share. For kube_store*.c only; everybody else uses store.h. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_STORE_STATE_H
#define SLUICE_PICK_DISCOVERY_KUBE_STORE_STATE_H

#include "pick/config/reader.h"
#include "pick/discovery/kube/store.h"

struct kube_object {
    char *name;
    struct kube_pod *pod; /* of a pod that makes sense */
    struct doc *doc;      /* of others: metadata, spec and status */
    char *why;            /* it makes no sense, and the log has said so; NULL: it does */
    uint64_t round;       /* of the list that had it last */
};

/* The objects of a kind, by name. */
struct kube_objects {
    struct kube_object *items;
    size_t n, cap;
    uint64_t round; /* one more with each list */
    bool known, served;
};

struct kube_store {
    struct kube_store_options options;
    struct kube_objects kinds[N_KUBE_KINDS];
    uint64_t version;
    /* The InferencePool that is used, which has these: its selector and its ports. */
    struct pool_spec *pool; /* NULL: there is none */
    enum kube_kind pool_kind;
    struct pool_config_ports ports;
};

/* ---- object.c --------------------------------------------------------------------------- */

/* Reads what matters of an object of the API into a zeroed one. Returns: ST_BAD_CONFIG, then too
 * with a name; ST_NO_MEMORY, perhaps without. Owns: *out until kube_object_fini. */
enum status kube_object_read(enum kube_kind kind, const struct doc_node *object,
                             struct kube_object *out, struct error *err)
    __attribute__((warn_unused_result));
void kube_object_fini(struct kube_object *object);
/* Do they say the same, whatever their status is? */
bool kube_object_equal(const struct kube_object *a, const struct kube_object *b);
/* It is not of use any more: somebody deletes it. */
bool kube_object_is_deleting(const struct kube_object *object);
/* When it was made, as the API writes it: an order of these texts is one of times. */
struct str kube_object_created(const struct kube_object *object);
/* Does it refer to the pool of this name, and (NULL: any) group? */
bool kube_object_refers(const struct kube_object *object, const char *pool, const char *group);

/* ---- store_fill.c ----------------------------------------------------------------------- */

/* Is it an object of the pool that is used, whether it makes sense or not? */
bool kube_store_owns(const struct kube_store *store, enum kube_kind kind,
                     const struct kube_object *object);
/* The objects of the two kinds (which may be one) that are ours and make sense, the oldest first,
 * then by name. Returns: their number; *out in the arena, NULL when out of memory. */
size_t kube_store_list_by_age(const struct kube_store *store, enum kube_kind first,
                              enum kube_kind second, struct arena *arena,
                              const struct kube_object ***out);

#endif
