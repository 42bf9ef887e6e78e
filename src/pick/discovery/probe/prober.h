/* Checks the endpoints of all pools as their configuration says (spec->health), and reports to each
 * pool which endpoints are ready. The times and thresholds are in probe.h, the checks (HTTP, gRPC,
 * TCP) in probe_methods.c; connections to HTTP servers are kept open.
 *
 * If a check at the port of requests is refused, the pool avoids the endpoint at once, whatever its
 * thresholds are, until a check there succeeds.
 *
 * Thread: the worker's. */
#ifndef SLUICE_PICK_DISCOVERY_PROBE_PROBER_H
#define SLUICE_PICK_DISCOVERY_PROBE_PROBER_H

#include "core/event/worker.h"
#include "pick/pool/set.h"

struct prober;

struct prober_options {
    struct worker *worker;
    struct pool_set *pools;
    unsigned max_running; /* concurrent checks of all pools; 0: 512 */
    /* Each endpoint's first check has ended; called again after changes of the pools. May be
     * NULL. */
    void (*on_all_probed)(void *user);
    void *user;
};

/* Returns: ST_NO_MEMORY. Owns: *out until prober_free. */
enum status prober_new(const struct prober_options *options, struct prober **out,
                       struct error *err) SLUICE_MUST_USE;
/* Pools may have changed: follows them. */
void prober_refresh(struct prober *prober);
/* Cancels running checks; calls `done` when nothing is left on the loop, perhaps within the
 * call. */
void prober_stop(struct prober *prober, void (*done)(void *user), void *user);
/* After `done`, or if prober_refresh was never called. NULL is allowed. */
void prober_free(struct prober *prober);

#endif
