/* Leader election by a Lease (coordination.k8s.io/v1): from what was observed of the lease follows
 * the next step. Without I/O: objects and times in, requests out.
 *
 * Other pickers' clocks are not used: a lease has expired when it has not changed for its duration
 * since we observed it, by our own clock. The holder stops leading before that if it can't renew
 * the lease.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_LEASE_H
#define SLUICE_PICK_DISCOVERY_KUBE_LEASE_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "core/base/doc/doc.h"

enum { KUBE_LEASE_NAME_BYTES = 256, KUBE_LEASE_VERSION_BYTES = 128 };
enum {
    KUBE_LEASE_DURATION_S = 15,
    KUBE_LEASE_RENEW_DEADLINE_S = 10,
    KUBE_LEASE_RETRY_PERIOD_S = 2
};

struct kube_lease {
    char identity[KUBE_LEASE_NAME_BYTES]; /* our name in the lease */
    bool known, exists;                   /* the observed state follows */
    char holder[KUBE_LEASE_NAME_BYTES];
    char version[KUBE_LEASE_VERSION_BYTES];
    uint64_t duration_ns; /* of the lease */
    int64_t n_transitions;
    uint64_t observed_ns; /* when this state was first observed */
    uint64_t renewed_ns;  /* the request time of the last renewal; 0: we are not the holder */
    bool resigned;        /* leadership was given up for good */
};

enum kube_lease_step {
    KUBE_LEASE_GET,     /* read the lease */
    KUBE_LEASE_CREATE,  /* with the body of kube_lease_print, as the following */
    KUBE_LEASE_ACQUIRE, /* it has no holder */
    KUBE_LEASE_RENEW,
    KUBE_LEASE_RELEASE,
    KUBE_LEASE_STOPPED, /* nothing more is to be done */
};

/* Stores the observed lease; `object` NULL: there is none. */
void kube_lease_observe(struct kube_lease *lease, const struct doc_node *object, uint64_t now_ns);
/* The request of `step`, sent at `asked_ns`, succeeded with this object. */
void kube_lease_apply_success(struct kube_lease *lease, enum kube_lease_step step,
                              const struct doc_node *object, uint64_t asked_ns, uint64_t now_ns);
/* The request failed: another picker was faster, or the lease was deleted. The observed state is
 * discarded. */
void kube_lease_apply_conflict(struct kube_lease *lease);

/* The next step. */
enum kube_lease_step kube_lease_next(const struct kube_lease *lease, uint64_t now_ns);
/* Do we lead? */
bool kube_lease_is_leader(const struct kube_lease *lease, uint64_t now_ns);
/* When leadership ends unless it is renewed; 0: we do not lead. */
uint64_t kube_lease_expires_ns(const struct kube_lease *lease);
/* Prints the body of the step's request: a new object called `name`, or a merge patch with the
 * observed version, which the server rejects after a change by another picker. `wall_us`:
 * microseconds since 1970. */
void kube_lease_print(const struct kube_lease *lease, enum kube_lease_step step, const char *name,
                      int64_t wall_us, struct buf *out);

#endif
