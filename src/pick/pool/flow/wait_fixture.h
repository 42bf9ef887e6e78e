/* For tests of queueing: a pool with a limit, and requests that may wait for it. Include cmocka.h
 * before. */
#ifndef SLUICE_PICK_POOL_FLOW_WAIT_FIXTURE_H
#define SLUICE_PICK_POOL_FLOW_WAIT_FIXTURE_H

#include "pick/pool/flow/wait.h"
#include "pick/pool/pool_fixture.h"

/* A request that may wait. */
struct waiting_request {
    struct pool_waiter waiter; /* first: a waiter is cast to it */
    struct pool_request request;
    struct pool_pick pick;
    bool waits; /* the test's own record */
    struct error err;
};

static inline struct pool_spec *wait_fixture_spec(uint32_t n, uint64_t max_in_flight) {
    struct pool_spec *spec = fixture_spec_of(n);
    static const struct pool_objective objectives[] = {
        {STR("high"), 7}, {STR("low"), -1}, {STR("mid"), 3}};
    for (size_t i = 0; i < 3; i++) {
        pool_spec_add_objective(spec, &objectives[i]);
    }
    spec->max_in_flight = max_in_flight;
    spec->flow_control.on = true;
    return spec;
}

static inline struct subset wait_fixture_subset(struct endpoint_address *address, uint32_t i) {
    *address = fixture_numbered(i);
    return (struct subset){.items = address, .n = 1};
}

/* The number of waiting requests. */
static inline uint64_t wait_fixture_n(struct pool *pool) {
    struct pool_flow_stats stats;
    pool_get_flow_stats(pool, NULL, 0, &stats);
    return stats.n_waiting;
}

#endif
