/* Writes what the API expects of a picker into the status of the objects that refer to its pool
 * (kube_store_patches), one after the other. Nothing that is picked depends on it: where we may
 * not, or somebody else was faster, nothing is lost.
 *
 * Thread: the worker's. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_STATUS_H
#define SLUICE_PICK_DISCOVERY_KUBE_STATUS_H

#include "pick/discovery/kube/client.h"
#include "pick/discovery/kube/store.h"

struct kube_status;

struct kube_status_options {
    struct worker *worker;
    struct kube_client *client; /* the worker's */
    const char *name_space;
    const struct kube_store *store;
};

/* Returns: ST_NO_MEMORY. Owns: *out until kube_status_free. */
enum status kube_status_new(const struct kube_status_options *options, struct kube_status **out,
                            struct error *err) __attribute__((warn_unused_result));
/* The store says something else than before, all of it being known: what is missing is written
 * soon. */
void kube_status_update(struct kube_status *status);
/* Somebody else writes: what is under way is given up, until the next look. */
void kube_status_pause(struct kube_status *status);
/* Nothing is asked for any more; idempotent. Before the client is stopped. */
void kube_status_stop(struct kube_status *status);
/* Stopped. NULL is allowed. */
void kube_status_free(struct kube_status *status);

#endif
