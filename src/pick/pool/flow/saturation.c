/* Requests and tokens are summed up as they are; loads, which are shares of limits, in billionths
 * (UNITS), and their mean is rounded to what is certain of it. */
#include "pick/pool/flow/saturation.h"

#include <math.h>

#include "core/event/clock.h"
#include "pick/pool/profile/plugin.h"
#include "pick/pool/state.h"

static const double UNITS = 1e9, CERTAIN = 1e7;

uint8_t saturation_stages_of(struct pool_labels labels) {
    unsigned stages = 0;
    if (labels_have_role(labels, ROLE_PREFILL)) {
        stages |= 1u << SATURATION_PREFILL;
    }
    if (labels_have_role(labels, ROLE_DECODE)) {
        stages |= 1u << SATURATION_DECODE;
    }
    return (uint8_t)stages;
}

/* ---- what an endpoint contributes ------------------------------------------------------------ */

/* More than 10,000 times the limit is no more saturated than that. */
static int64_t amount_of_share(double share) {
    return (int64_t)round(fmin(share, 1e4) * UNITS);
}

/* Returns: false where it does not count. */
static bool measure_load(const struct pool_snapshot *snapshot, const struct endpoint *endpoint,
                         uint64_t now_ns, int64_t *amount) {
    const struct pool_spec *spec = snapshot->spec;
    struct load_estimate load =
        load_estimate_get(&snapshot->loads[endpoint->member], now_ns, endpoint_in_flight(endpoint));
    bool knows_waiting = (load.known & LOAD_WAITING) != 0;
    bool knows_cache = (load.known & LOAD_KV_CACHE) != 0;
    if (!knows_waiting && !knows_cache) {
        *amount = amount_of_share(1);
        return spec->detector.stale_is_saturated;
    }
    *amount = amount_of_share(pool_used_share(spec, 0, knows_waiting ? load.n_waiting : 0,
                                              knows_cache ? (double)load.kv_cache_used : 0));
    return true;
}

static bool measure(const struct pool_snapshot *snapshot, const struct endpoint *endpoint,
                    uint64_t now_ns, int64_t *amount) {
    const struct pool_spec *spec = snapshot->spec;
    uint32_t n_requests = endpoint_in_flight(endpoint);
    uint64_t n_tokens = endpoint_n_tokens(endpoint);
    switch (spec->detector.kind) {
    case DETECTOR_NONE:
        return false;
    case DETECTOR_REQUESTS:
        *amount = n_requests;
        return true;
    case DETECTOR_TOKENS:
        *amount = (int64_t)n_tokens;
        return true;
    case DETECTOR_HYBRID:
        *amount = amount_of_share(fmax((double)n_requests / (double)spec->max_in_flight,
                                       (double)n_tokens / (double)spec->detector.max_tokens));
        return true;
    case DETECTOR_LOADS:
        break;
    }
    return measure_load(snapshot, endpoint, now_ns, amount);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void add_to_sum(struct saturation_sum *sum, const struct endpoint_share *share, bool more) {
    sum->amount += more ? share->amount : -share->amount;
    sum->n += more ? 1 : UINT32_MAX; /* modulo 2^32 */
    sum->n_counted += share->is_counted ? more ? 1 : UINT32_MAX : 0;
}

static void add_share(struct pool_saturation *saturation, const struct endpoint_share *share,
                      bool more) {
    if (share->is_member) {
        add_to_sum(&saturation->all, share, more);
        for (size_t i = 0; i < N_SATURATION_STAGES; i++) {
            if (share->stages >> i & 1) {
                add_to_sum(&saturation->stages[i], share, more);
            }
        }
    }
}

/* Returns: below 0: there are no endpoints. */
static double saturation_of(const struct pool_spec *spec, const struct saturation_sum *sum) {
    double n = sum->n, amount = (double)sum->amount;
    if (sum->n == 0) {
        return -1;
    }
    if (spec->detector.kind == DETECTOR_REQUESTS) {
        return amount / (n * (double)spec->max_in_flight);
    }
    if (spec->detector.kind == DETECTOR_TOKENS) {
        return amount / (n * (double)spec->detector.max_tokens);
    }
    double mean = sum->n_counted > 0 ? amount / UNITS / sum->n_counted : 0;
    return round(mean * CERTAIN) / CERTAIN;
}

static double effective_of(const struct pool_spec *spec, const struct pool_saturation *saturation) {
    double most = -1;
    for (size_t i = 0; i < N_SATURATION_STAGES; i++) {
        most = fmax(most, saturation_of(spec, &saturation->stages[i]));
    }
    most = most < 0 ? saturation_of(spec, &saturation->all) : most;
    return most < 0 ? 1 : most;
}

static void store_value(struct pool *pool) {
    atomic_store_explicit(&pool->saturation.value,
                          effective_of(pool->snapshot->spec, &pool->saturation),
                          memory_order_relaxed);
}

static void replace_share(struct pool *pool, struct endpoint *endpoint, uint64_t now_ns) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    struct endpoint_share *share = &endpoint->share;
    add_share(&pool->saturation, share, false);
    *share =
        (struct endpoint_share){.is_member = endpoint->in_pool && endpoint_is_eligible(endpoint)};
    if (share->is_member) {
        share->stages = snapshot->members[endpoint->member].stages;
        share->is_counted = measure(snapshot, endpoint, now_ns, &share->amount);
        share->amount = share->is_counted ? share->amount : 0;
    }
    add_share(&pool->saturation, share, true);
}

/* Each report expires once: the next time that all are looked at is when the first of those that
 * are valid now does. */
static void replace_all(struct pool *pool) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint64_t now_ns = clock_now_ns(), recheck_ns = UINT64_MAX;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        uint64_t until_ns =
            atomic_load_explicit(&snapshot->loads[i].until_ns, memory_order_relaxed);
        recheck_ns = until_ns > now_ns && until_ns < recheck_ns ? until_ns : recheck_ns;
        replace_share(pool, snapshot->members[i].endpoint, now_ns);
    }
    pool->saturation.recheck_ns =
        snapshot->spec->detector.kind == DETECTOR_LOADS ? recheck_ns : UINT64_MAX;
    store_value(pool);
}

void pool_saturation_rebuild(struct pool *pool, const struct pool_snapshot *old) {
    for (uint32_t i = 0; i < old->n_members; i++) {
        old->members[i].endpoint->share = (struct endpoint_share){.is_member = false};
    }
    for (uint32_t i = 0; i < pool->snapshot->n_members; i++) {
        pool->snapshot->members[i].endpoint->share = (struct endpoint_share){.is_member = false};
    }
    struct pool_saturation *saturation = &pool->saturation;
    for (size_t i = 0; i < N_SATURATION_STAGES; i++) {
        saturation->stages[i] = (struct saturation_sum){.amount = 0};
    }
    saturation->all = (struct saturation_sum){.amount = 0};
    saturation->recheck_ns = UINT64_MAX;
    if (pool_spec_is_by_pool(pool->snapshot->spec)) {
        replace_all(pool);
    } else {
        atomic_store_explicit(&saturation->value, 0, memory_order_relaxed);
    }
}

void pool_saturation_update(struct pool *pool, struct endpoint *endpoint) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint64_t now_ns = snapshot->spec->detector.kind == DETECTOR_LOADS ? clock_now_ns() : 0;
    lock_assert_held(&pool->lock);
    replace_share(pool, endpoint, now_ns);
    if (now_ns > 0 && endpoint->in_pool) {
        uint64_t until_ns =
            atomic_load_explicit(&snapshot->loads[endpoint->member].until_ns, memory_order_relaxed);
        if (until_ns > now_ns && until_ns < pool->saturation.recheck_ns) {
            pool->saturation.recheck_ns = until_ns;
        }
    }
    store_value(pool);
}

/* ---- gates ----------------------------------------------------------------------------------- */

bool pool_seems_closed(const struct pool *pool, const struct pool_snapshot *snapshot,
                       struct pool_gate gate) {
    double used = atomic_load_explicit(&pool->saturation.value, memory_order_relaxed);
    return gate.ceiling < 1 ? usage_is_over(snapshot->spec->flow_control.usage.kind, gate.ceiling,
                                            used, gate.cycle)
                            : used >= 1;
}

static void recheck(struct pool *pool) {
    if (pool->saturation.recheck_ns < UINT64_MAX && pool->saturation.recheck_ns <= clock_now_ns()) {
        replace_all(pool);
    }
}

bool pool_is_gate_closed(struct pool *pool, struct pool_gate gate) {
    lock_assert_held(&pool->lock);
    recheck(pool);
    return pool_seems_closed(pool, pool->snapshot, gate);
}

/* Of requests it is known what one is. */
bool pool_seems_saturated_without_one(const struct pool *pool,
                                      const struct pool_snapshot *snapshot) {
    double used = atomic_load_explicit(&pool->saturation.value, memory_order_relaxed);
    return snapshot->spec->detector.kind == DETECTOR_REQUESTS ? used > 1 : used >= 1;
}

void pool_get_saturation(struct pool *pool, struct pool_saturation_stats *out) {
    lock_acquire(&pool->lock);
    recheck(pool);
    const struct pool_spec *spec = pool->snapshot->spec;
    *out = (struct pool_saturation_stats){.effective = effective_of(spec, &pool->saturation)};
    for (size_t i = 0; i < N_SATURATION_STAGES; i++) {
        out->stages[i] = saturation_of(spec, &pool->saturation.stages[i]);
    }
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; spec->detector.kind == DETECTOR_LOADS && i < pool->snapshot->n_members;
         i++) {
        out->n_stale += atomic_load_explicit(&pool->snapshot->loads[i].until_ns,
                                             memory_order_relaxed) <= now_ns;
    }
    lock_release(&pool->lock);
}
