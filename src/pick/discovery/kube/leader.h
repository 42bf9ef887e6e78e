/* Leader election among the pickers of a pool, by a Lease in the pool's namespace (lease.h). Its
 * name and times are those of upstream's picker, so that the two exclude each other during a
 * migration.
 *
 * Thread: the worker's, for everything but kube_leader_report. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_LEADER_H
#define SLUICE_PICK_DISCOVERY_KUBE_LEADER_H

#include "pick/discovery/kube/client.h"
#include "pick/discovery/kube/lease.h"

struct kube_leader;

struct kube_leader_options {
    struct worker *worker;
    struct kube_client *client; /* the worker's */
    const char *name_space;     /* the pool's */
    const char *pool;           /* the pool's name */
    void (*on_leadership_changed)(void *user,
                                  bool leads); /* Also called within kube_leader_resign. */
    void *user;
};

/* Starts at once, without leadership. Returns: ST_NO_MEMORY. Owns: *out until kube_leader_free. */
enum status kube_leader_new(const struct kube_leader_options *options, struct kube_leader **out,
                            struct error *err) SLUICE_MUST_USE;
/* Gives up leadership for good; a lease that is held is released. Idempotent. */
void kube_leader_resign(struct kube_leader *leader);
/* The same; calls `done` when nothing is left on the loop, perhaps within the call: after some
 * seconds at most. The client must live until then. */
void kube_leader_stop(struct kube_leader *leader, void (*done)(void *user), void *user);
/* After `done`, or when there is no loop any more. NULL is allowed. */
void kube_leader_free(struct kube_leader *leader);

struct kube_leader_state {
    bool leads;
    char identity[KUBE_LEASE_NAME_BYTES];
    char holder[KUBE_LEASE_NAME_BYTES]; /* of the lease, as last seen */
    uint64_t n_failures;                /* failed requests */
    struct error error;                 /* of the last request; ST_OK: it succeeded */
};
/* The current state. Thread: any. */
void kube_leader_report(struct kube_leader *leader, struct kube_leader_state *out);

#endif
