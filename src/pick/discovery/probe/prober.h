/* Checks the endpoints of all pools, as the configuration of each says (spec->health), and tells
 * the pool which are ready. What probe.h decides is made to happen: over HTTP, over gRPC, or by a
 * connection alone; connections to answering HTTP servers are kept.
 *
 * A check that is refused at the port that requests go to makes the endpoint the last choice at
 * once, however many failures its readiness takes; one that succeeds there ends that.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_PICK_DISCOVERY_PROBE_PROBER_H
#define SLUICE_PICK_DISCOVERY_PROBE_PROBER_H

#include "core/event/worker.h"
#include "pick/pool/set.h"

struct prober;

struct prober_options {
    struct worker *worker;
    struct pool_set *pools;
    unsigned max_running; /* checks of all pools; 0: 512 */
    /* Called whenever no endpoint is left whose first check has not ended; may be NULL. */
    void (*on_all_probed)(void *user);
    void *user;
};

/* Returns: ST_NO_MEMORY. Owns: *out until prober_free. */
enum status prober_new(const struct prober_options *options, struct prober **out, struct error *err)
    __attribute__((warn_unused_result));
/* Pools may be others now: checks what they have. */
void prober_refresh(struct prober *prober);
/* Gives up what is under way; `done` when nothing is left on the loop, perhaps from within. */
void prober_stop(struct prober *prober, void (*done)(void *user), void *user);
/* After `done`, or of one that never looked. NULL is allowed. */
void prober_free(struct prober *prober);

#endif
