/* The saturation of a pool as a whole, as upstream's detectors measure it: 1 where what its
 * endpoints have together is used up, more beyond that. It decides whether a request is sent at
 * all; where to is the profile's choice, which may be an endpoint that has more than its share.
 *
 * A pool with endpoints for prefill and for decode is as saturated as that of the two stages which
 * is more so. Endpoints for both count in both, those that only encode in neither.
 *
 * What each endpoint contributes is kept, so that a change of one takes the same time however many
 * there are. Sums are of whole numbers, so that they do not drift.
 *
 * Internal to pick/pool; under the pool's lock, except where it says otherwise. */
#ifndef SLUICE_PICK_POOL_FLOW_SATURATION_H
#define SLUICE_PICK_POOL_FLOW_SATURATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pick/pool/snapshot.h"

struct pool;
struct pool_gate;
struct pool_snapshot;

struct saturation_sum {
    int64_t amount;
    uint32_t n, n_counted; /* endpoints; those whose amount counts */
};

/* Zeroed memory: not used. */
struct pool_saturation {
    struct saturation_sum stages[N_SATURATION_STAGES], all;
    uint64_t recheck_ns; /* when the first load report expires */
    _Atomic double value;
};

/* Whether the pool is measured as a whole. Thread: any. */
static inline bool pool_spec_is_by_pool(const struct pool_spec *spec) {
    return spec->detector.kind != DETECTOR_NONE;
}

/* The stages that an endpoint with these labels counts in: a bit for each. Thread: any. */
uint8_t saturation_stages_of(struct pool_labels labels);

/* The pool has a new snapshot in place of `old`. */
void pool_saturation_rebuild(struct pool *pool, const struct pool_snapshot *old);
/* The endpoint's load, requests, tokens or rank have changed. */
void pool_saturation_update(struct pool *pool, struct endpoint *endpoint);

/* Whether the pool is too saturated for requests of the gate. */
bool pool_is_gate_closed(struct pool *pool, struct pool_gate gate);
/* The same, at the last change, by the settings of a snapshot that the caller holds. Thread: any,
 * without the lock. */
bool pool_seems_closed(const struct pool *pool, const struct pool_snapshot *snapshot,
                       struct pool_gate gate);
/* Whether it would be saturated without one of the requests that are in flight. Thread: as above.
 */
bool pool_seems_saturated_without_one(const struct pool *pool,
                                      const struct pool_snapshot *snapshot);

#endif
