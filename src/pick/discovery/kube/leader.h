/* One of several pickers of a pool leads, by a Lease in the pool's namespace (lease.h), which
 * has the name and the times that upstream's picker gives it: one that takes over from the other
 * waits for it.
 *
 * Thread: the worker's, for everything but kube_leader_report. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_LEADER_H
#define SLUICE_PICK_DISCOVERY_KUBE_LEADER_H

#include "pick/discovery/kube/client.h"
#include "pick/discovery/kube/lease.h"

struct kube_leader;

struct kube_leader_options {
    struct worker *worker;
    struct kube_client *client;                            /* the worker's */
    const char *name_space;                                /* of the pool */
    const char *pool;                                      /* its name */
    void (*on_leadership_changed)(void *user, bool leads); /* also from within kube_leader_resign */
    void *user;
};

/* Begins at once, as one that does not lead. Returns: ST_NO_MEMORY. Owns: *out until
 * kube_leader_free. */
enum status kube_leader_new(const struct kube_leader_options *options, struct kube_leader **out,
                            struct error *err) __attribute__((warn_unused_result));
/* It leads no more, and never again: if it did, the lease is given back. Idempotent. */
void kube_leader_resign(struct kube_leader *leader);
/* The same, and `done` when nothing of it is on the loop, perhaps from within: after some seconds
 * at most. The client stays until then. */
void kube_leader_stop(struct kube_leader *leader, void (*done)(void *user), void *user);
/* After `done`, or on no loop any more. NULL is allowed. */
void kube_leader_free(struct kube_leader *leader);

struct kube_leader_state {
    bool leads;
    char identity[KUBE_LEASE_NAME_BYTES];
    char holder[KUBE_LEASE_NAME_BYTES]; /* who has the lease, as far as it is known */
    uint64_t n_failures;                /* asks that came to nothing */
    struct error error;                 /* of the last one; ST_OK: it is well */
};
/* As it is now. Thread: any. */
void kube_leader_report(struct kube_leader *leader, struct kube_leader_state *out);

#endif
