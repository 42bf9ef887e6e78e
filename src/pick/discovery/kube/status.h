/* Writes the status of the objects that refer to the pool, as the API expects of a picker
 * (kube_store_patches), one patch after the other. Picks do not depend on it: a patch that is
 * denied or in conflict is dropped.
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
                            struct error *err) SLUICE_MUST_USE;
/* To be called when the store has changed and is synced: missing statuses are written soon. */
void kube_status_update(struct kube_status *status);
/* Another picker leads: cancels the patch that is being sent, until the next kube_status_update. */
void kube_status_pause(struct kube_status *status);
/* Sends nothing more; idempotent. To be called before the client is stopped. */
void kube_status_stop(struct kube_status *status);
/* After kube_status_stop. NULL is allowed. */
void kube_status_free(struct kube_status *status);

#endif
