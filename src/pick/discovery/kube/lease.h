/* Who of several leads, by a Lease (coordination.k8s.io/v1) that one of them holds: what is to be
 * done with it next, by what was seen of it. Without I/O: objects and times in, requests out.
 *
 * Clocks of others are not trusted: a lease has run out when it has stayed as it is for as long as
 * it says, by our own clock, since we saw it so. Whoever holds it stops leading earlier than that
 * when it can't renew it.
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
    char identity[KUBE_LEASE_NAME_BYTES]; /* who we are there */
    bool known, exists;                   /* what follows was seen of it */
    char holder[KUBE_LEASE_NAME_BYTES];
    char version[KUBE_LEASE_VERSION_BYTES];
    uint64_t duration_ns; /* as it says */
    int64_t n_transitions;
    uint64_t observed_ns; /* when it was first seen so */
    uint64_t
        renewed_ns; /* when we asked for it the last time that we got it; 0: we don't hold it */
    bool resigned;  /* we want it no more */
};

enum kube_lease_step {
    KUBE_LEASE_GET,     /* it is to be read */
    KUBE_LEASE_CREATE,  /* with what kube_lease_print says, and so the following */
    KUBE_LEASE_ACQUIRE, /* nobody has it any more */
    KUBE_LEASE_RENEW,
    KUBE_LEASE_RELEASE,
    KUBE_LEASE_STOPPED, /* nothing is to be done, ever */
};

/* As it was read, or as it is after a change of ours; `object` NULL: there is none. */
void kube_lease_observe(struct kube_lease *lease, const struct doc_node *object, uint64_t now_ns);
/* What we asked for at `asked_ns` was done: the answer is the object. */
void kube_lease_apply_success(struct kube_lease *lease, enum kube_lease_step step,
                              const struct doc_node *object, uint64_t asked_ns, uint64_t now_ns);
/* It was not: somebody else was faster, or it is gone. What was seen counts no more. */
void kube_lease_apply_conflict(struct kube_lease *lease);

/* What is to be asked for now. */
enum kube_lease_step kube_lease_next(const struct kube_lease *lease, uint64_t now_ns);
/* Do we lead? */
bool kube_lease_is_leader(const struct kube_lease *lease, uint64_t now_ns);
/* When that ends, unless it is renewed; 0: we don't. */
uint64_t kube_lease_expires_ns(const struct kube_lease *lease);
/* The body of a step's request: of a new object called `name`, or a merge patch, which is refused
 * when somebody else was faster. `wall_us`: microseconds since 1970. */
void kube_lease_print(const struct kube_lease *lease, enum kube_lease_step step, const char *name,
                      int64_t wall_us, struct buf *out);

#endif
