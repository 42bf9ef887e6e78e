/* The heap's key has the priority in its upper half, and in the lower one how late the lease began:
 * the lease with the lowest key is revoked first. */
#include "pick/pool/flow/evict.h"

#include <assert.h>
#include <math.h>

#include "core/event/clock.h"
#include "pick/pool/state.h"

enum { MAX_REVOCATIONS = 2 };
static const uint64_t CONFIRMATION_TIMEOUT_NS = UINT64_C(10000000000);

static const uint64_t TIME_BOUNDS[EVICTION_TIME_BOUNDS] = {
    5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000};
const struct metric_scale EVICTION_TIMES = {METRIC_UNIT_SECONDS, EVICTION_TIME_BOUNDS, TIME_BOUNDS};

void pool_eviction_fini(struct pool_eviction *eviction) {
    assert(eviction->n_leases == 0 && LIST_EMPTY(&eviction->awaited));
    timer_heap_fini(&eviction->revocable);
}

static struct pool_waiter *waiter_of(struct pool_lease *lease) {
    return CONTAINER_OF(lease, struct pool_waiter, lease);
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* Priorities are those of objects of Kubernetes, of 32 bits; others are as good as the lowest. */
static uint64_t order_of(int64_t priority, uint64_t number) {
    uint64_t above_lowest = priority < INT32_MIN ? 0 : (uint64_t)(priority - (int64_t)INT32_MIN);
    return above_lowest << 32 | (UINT32_MAX - (uint32_t)number);
}

void pool_hold_lease(struct pool *pool, struct pool_waiter *waiter, int64_t priority) {
    struct pool_lease *lease = &waiter->lease;
    struct pool_eviction *eviction = &pool->eviction;
    assert(!lease->is_held && waiter->item.state == FLOW_IDLE);
    lock_acquire(&pool->lock);
    *lease = (struct pool_lease){.priority = priority, .is_held = true};
    eviction->n_leases++;
    if (priority < 0 &&
        !timer_heap_set(&eviction->revocable, &lease->order, order_of(priority, pool->n_picks))) {
        lease->order = (struct timer_node){0}; /* out of memory it is not revoked */
    }
    lock_release(&pool->lock);
}

/* Until the effect of what was revoked shows. */
static void begin_grace(struct pool *pool, uint64_t now_ns) {
    uint64_t open_ns = now_ns + pool->snapshot->spec->flow_control.evict_grace_ns;
    if (open_ns > pool->eviction.open_ns) {
        pool->eviction.open_ns = open_ns;
    }
}

static void confirm(struct pool *pool, struct pool_lease *lease, uint64_t now_ns) {
    LIST_REMOVE(lease, link);
    lease->is_awaited = false;
    pool->eviction.n_confirmed++;
    metric_scale_add(&EVICTION_TIMES, pool->eviction.times,
                     clock_between_ns(lease->revoked_ns, now_ns));
    begin_grace(pool, now_ns);
}

void pool_end_lease(struct pool *pool, struct pool_waiter *waiter) {
    struct pool_lease *lease = &waiter->lease;
    struct pool_eviction *eviction = &pool->eviction;
    if (!lease->is_held) {
        return;
    }
    lock_acquire(&pool->lock);
    lease->is_held = false;
    eviction->n_leases--;
    timer_heap_remove(&eviction->revocable, &lease->order);
    if (lease->is_awaited) {
        confirm(pool, lease, clock_now_ns());
    }
    if (lease->is_revoked) { /* it may have ended before it was told */
        pool_wakeup_forget(waiter);
    }
    lock_release(&pool->lock);
}

/* ---- revoking -------------------------------------------------------------------------------- */

/* A request whose end does not come holds up no others for ever. */
static void sweep_awaited(struct pool *pool, uint64_t now_ns) {
    struct pool_lease *lease = LIST_FIRST(&pool->eviction.awaited), *next;
    for (; lease; lease = next) {
        next = LIST_NEXT(lease, link);
        if (clock_between_ns(lease->revoked_ns, now_ns) >= CONFIRMATION_TIMEOUT_NS) {
            LIST_REMOVE(lease, link);
            lease->is_awaited = false;
            pool->eviction.n_timed_out++;
            begin_grace(pool, now_ns);
        }
    }
}

/* A priority that may use nothing waits whatever is revoked. */
static bool is_held_up(void *user, int64_t priority) {
    struct pool *pool = user;
    struct pool_gate gate = pool_gate_of(pool->snapshot, priority, 1);
    return gate.ceiling > 0 && pool_is_gate_closed(pool, gate);
}

static int64_t first_priority(const struct pool_eviction *eviction) {
    struct timer_node *first = timer_heap_first(&eviction->revocable);
    return CONTAINER_OF(first, struct pool_lease, order)->priority;
}

/* Returns: how many leases would make up for it. */
static size_t count_needed(struct pool_eviction *eviction, double saturation, double ceiling) {
    double footprint = saturation / (double)eviction->n_leases;
    double needed = footprint > 0 ? ceil((saturation - ceiling) / footprint - 1e-9) : 0;
    eviction->target = saturation - ceiling;
    return needed < 1 ? 1 : needed > MAX_REVOCATIONS ? MAX_REVOCATIONS : (size_t)needed;
}

static void revoke_first(struct pool *pool, uint64_t now_ns,
                         struct pool_notifications *notifications) {
    struct pool_eviction *eviction = &pool->eviction;
    struct pool_lease *lease =
        CONTAINER_OF(timer_heap_first(&eviction->revocable), struct pool_lease, order);
    timer_heap_remove(&eviction->revocable, &lease->order);
    lease->is_revoked = lease->is_awaited = true;
    lease->revoked_ns = now_ns;
    LIST_INSERT_HEAD(&eviction->awaited, lease, link);
    eviction->n_revoked++;
    pool_wakeup_append(waiter_of(lease), notifications);
}

void pool_evict(struct pool *pool, struct pool_notifications *notifications) {
    struct pool_eviction *eviction = &pool->eviction;
    const struct pool_snapshot *snapshot = pool->snapshot;
    int64_t demand;
    if (!snapshot->spec->flow_control.evicts || pool->flow.n_queued == 0 ||
        eviction->revocable.n == 0 || pool->ranking.n == 0) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    sweep_awaited(pool, now_ns);
    if (!LIST_EMPTY(&eviction->awaited) || now_ns < eviction->open_ns) {
        return;
    }
    eviction->pending = 0;
    if (!flow_find_demand(&pool->flow, first_priority(eviction), is_held_up, pool, &demand)) {
        return;
    }
    double saturation = atomic_load_explicit(&pool->saturation.value, memory_order_relaxed);
    size_t n = count_needed(eviction, saturation, pool_gate_of(snapshot, demand, 1).ceiling);
    size_t n_revoked = 0;
    while (n_revoked < n && eviction->revocable.n > 0 && first_priority(eviction) < demand) {
        revoke_first(pool, now_ns, notifications);
        n_revoked++;
    }
    eviction->pending = (double)n_revoked * saturation / (double)eviction->n_leases;
    flow_count_revoked(&pool->flow, demand, n_revoked);
}

void pool_get_eviction(struct pool *pool, struct pool_eviction_stats *out) {
    lock_acquire(&pool->lock);
    const struct pool_eviction *eviction = &pool->eviction;
    *out = (struct pool_eviction_stats){.n_leases = eviction->n_leases,
                                        .n_revocable = eviction->revocable.n,
                                        .n_revoked = eviction->n_revoked,
                                        .n_confirmed = eviction->n_confirmed,
                                        .n_timed_out = eviction->n_timed_out,
                                        .target = eviction->target,
                                        .pending = eviction->pending};
    if (LIST_EMPTY(&eviction->awaited) && clock_now_ns() >= eviction->open_ns) {
        out->pending = 0;
    }
    metric_scale_read(&EVICTION_TIMES, eviction->times, out->times);
    lock_release(&pool->lock);
}
