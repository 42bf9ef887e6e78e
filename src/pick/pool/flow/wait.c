/* Notifies waiters when an endpoint has capacity. A notified waiter is in its wakeup's list until
 * pool_wakeup_pop; it may leave list and queue at any time before. A wakeup's lock is taken within
 * the pool's. */
#include "pick/pool/flow/wait.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"
#include "core/event/clock.h"
#include "pick/pool/state.h"

/* For how long an endpoint with capacity that a waiter could not use is not offered again. */
static const uint64_t STALLED_NS = 1000000000;

static struct pool_waiter *waiter_of(struct flow_item *item) {
    return (struct pool_waiter *)(void *)item;
}

static void count_unrestricted(struct pool *pool, const struct pool_waiter *waiter, bool more) {
    if (!waiter->subset && !waiter->selection && waiter->profile == 0) {
        uint64_t n = atomic_load_explicit(&pool->n_unrestricted, memory_order_relaxed);
        atomic_store_explicit(&pool->n_unrestricted, more ? n + 1 : n - 1, memory_order_relaxed);
    }
}

/* ---- capacity -------------------------------------------------------------------------------- */

/* The limit of the whole capacity that the member has reached. Returns: NULL: none. */
static const char *reached_limit(const struct pool_snapshot *snapshot, uint32_t member,
                                 uint32_t in_flight, uint64_t now_ns) {
    const struct pool_spec *spec = snapshot->spec;
    const char *limit = pool_limit_reached(spec, in_flight, 0, 0);
    if (limit || !pool_limits_loads(spec)) {
        return limit;
    }
    struct load_estimate load = load_estimate_get(&snapshot->loads[member], now_ns, in_flight);
    return pool_limit_reached(spec, in_flight, load.known & LOAD_WAITING ? load.n_waiting : 0,
                              load.known & LOAD_KV_CACHE ? (double)load.kv_cache_used : 0);
}

/* The share that is used of the limit that is nearest to being reached. */
static double member_used_share(const struct pool_snapshot *snapshot, uint32_t member,
                                uint32_t in_flight, uint64_t now_ns) {
    const struct pool_spec *spec = snapshot->spec;
    struct load_estimate load = {0};
    if (pool_limits_loads(spec)) {
        load = load_estimate_get(&snapshot->loads[member], now_ns, in_flight);
    }
    return pool_used_share(spec, in_flight, load.known & LOAD_WAITING ? load.n_waiting : 0,
                           load.known & LOAD_KV_CACHE ? (double)load.kv_cache_used : 0);
}

bool pool_is_member_full(const struct pool_snapshot *snapshot, uint32_t member,
                         const struct pool_waiter *waiter, struct pool_gate gate, uint64_t now_ns) {
    const struct endpoint *endpoint = snapshot->members[member].endpoint;
    uint32_t in_flight = endpoint_in_flight(endpoint);
    if (waiter && waiter->reserved == endpoint && in_flight > 0) {
        in_flight--;
    }
    if (gate.ceiling >= 1) {
        return reached_limit(snapshot, member, in_flight, now_ns) != NULL;
    }
    return usage_is_over(snapshot->spec->flow_control.usage.kind, gate.ceiling,
                         member_used_share(snapshot, member, in_flight, now_ns), gate.cycle);
}

const char *pool_reached_limit(const struct pool_reader *reader, uint32_t member, int64_t priority,
                               uint32_t in_flight, uint64_t now_ns) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    if (pool_spec_is_by_pool(snapshot->spec)) {
        return pool_seems_closed(reader->pool, snapshot, pool_gate_of(snapshot, priority, 1))
                   ? "the saturation of the pool"
                   : NULL;
    }
    const char *limit = reached_limit(snapshot, member, in_flight, now_ns);
    struct pool_gate gate = pool_gate_of(snapshot, priority, 1);
    bool is_over =
        gate.ceiling < 1 &&
        usage_is_over(USAGE_STATIC, gate.ceiling,
                      member_used_share(snapshot, member, in_flight, now_ns), gate.cycle);
    return limit ? limit : is_over ? "the usage limit of its priority" : NULL;
}

bool pool_has_queued_from(const struct pool *pool, int64_t priority) {
    return flow_has_queued_from(&pool->flow, priority);
}

/* Of the highest priority, which may use most. */
static struct pool_gate widest_gate(const struct pool *pool) {
    return pool_gate_of(pool->snapshot, INT64_MAX, 0);
}

static uint64_t current_cycle(const struct pool *pool) {
    return atomic_load_explicit(&pool->n_cycles, memory_order_relaxed);
}

/* Whether the waiter's priority may not use the member as far as it is used already. */
static bool is_over_ceiling(const struct pool *pool, const struct flow_item *item,
                            uint32_t member) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    return snapshot->ceilings &&
           pool_is_member_full(snapshot, member, NULL,
                               pool_gate_of(snapshot, flow_priority(item), current_cycle(pool)),
                               clock_now_ns());
}

/* A slot that is reserved counts against the endpoint's window once the request is sent. */
void pool_reserve_slot(struct pool *pool, struct pool_waiter *waiter) {
    struct endpoint *endpoint = waiter->reserved;
    enum detector_kind kind = pool->snapshot->spec->detector.kind;
    bool counts_tokens = kind == DETECTOR_TOKENS || kind == DETECTOR_HYBRID;
    waiter->n_reserved_tokens = counts_tokens ? waiter->n_tokens : 0;
    endpoint->window.n_reserved++;
    endpoint_add_tokens(pool, endpoint, waiter->n_reserved_tokens);
    endpoint_add_request(pool, endpoint);
}

void pool_release_slot(struct pool *pool, struct pool_waiter *waiter) {
    struct endpoint *endpoint = waiter->reserved;
    endpoint->window.n_reserved--;
    endpoint_add_tokens(pool, endpoint, -(int64_t)waiter->n_reserved_tokens);
    endpoint_remove_request(pool, endpoint);
}

/* Whether the slots that are reserved use up the endpoint's window. */
static bool is_window_reserved(const struct endpoint *endpoint) {
    uint32_t size = endpoint_window_size(endpoint);
    return size > 0 && endpoint->window.n_reserved > 0 &&
           endpoint_in_flight(endpoint) >= (uint64_t)size + endpoint->window.n_older;
}

static bool has_capacity(struct pool *pool, const struct endpoint *endpoint) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    if (is_window_reserved(endpoint)) {
        return false;
    }
    const struct pool_member *member =
        endpoint_is_eligible(endpoint) ? pool_snapshot_find(snapshot, &endpoint->address) : NULL;
    return member && !pool_is_member_full(snapshot, (uint32_t)(member - snapshot->members), NULL,
                                          widest_gate(pool), clock_now_ns());
}

/* ---- which waiter may use which endpoint ----------------------------------------------------- */

static bool is_restricted(const struct pool_waiter *waiter) {
    return waiter->subset || waiter->selection || waiter->profile != 0;
}

static size_t count_words(const struct pool_snapshot *snapshot) {
    return ((size_t)snapshot->n_members + 63) / 64;
}

static void mark_members(const struct pool_snapshot *snapshot, const struct subset *subset,
                         uint64_t *members) {
    for (size_t i = 0; i < subset->n; i++) {
        size_t n;
        const struct pool_member *member =
            pool_snapshot_find_listed(snapshot, &subset->items[i], &n);
        for (size_t at = member ? (size_t)(member - snapshot->members) : 0; n > 0; n--, at++) {
            members[at / 64] |= UINT64_C(1) << at % 64;
        }
    }
}

void pool_waiter_forget(struct pool_waiter *waiter) {
    free(waiter->members);
    waiter->members = NULL;
    waiter->members_generation = 0;
}

/* The bit of the profile with this name; all bits where the configuration has none of this name. */
static uint16_t profiles_of(const struct pool_snapshot *snapshot, uint64_t name_hash) {
    const struct profile_handler *handler = snapshot->spec->handler;
    for (size_t i = 0; name_hash != 0 && handler && i < handler->n_profiles; i++) {
        if (profile_name_hash(&handler->profiles[i]) == name_hash) {
            return (uint16_t)(1u << i);
        }
    }
    return UINT16_MAX;
}

/* Out of memory the waiter has no set until the next snapshot: its subset is searched. */
void pool_waiter_resolve(const struct pool_snapshot *snapshot, struct pool_waiter *waiter) {
    if (!is_restricted(waiter) || waiter->members_generation == snapshot->generation) {
        return;
    }
    const struct subset *one = waiter->subset ? waiter->subset : waiter->selection;
    const struct subset *other = waiter->subset ? waiter->selection : NULL;
    uint16_t profiles = profiles_of(snapshot, waiter->profile);
    size_t n = count_words(snapshot);
    free(waiter->members);
    waiter->members = calloc((other ? 2 * n : n) + 1, sizeof(*waiter->members));
    waiter->members_generation = snapshot->generation;
    if (!waiter->members) {
        return;
    }
    if (one) {
        mark_members(snapshot, one, waiter->members);
    } else {
        memset(waiter->members, 0xff, n * sizeof(*waiter->members));
    }
    for (uint32_t i = 0; i < n * 64; i++) {
        bool allowed = i < snapshot->n_members && (snapshot->members[i].profiles & profiles) != 0;
        waiter->members[i / 64] &= ~((uint64_t)!allowed << i % 64);
    }
    if (other) {
        mark_members(snapshot, other, waiter->members + n);
        for (size_t i = 0; i < n; i++) {
            waiter->members[i] &= waiter->members[n + i];
        }
    }
}

static bool has_member(const struct pool_waiter *waiter, const struct endpoint *endpoint) {
    if (waiter->members) {
        return waiter->members[endpoint->member / 64] >> endpoint->member % 64 & 1;
    }
    return (!waiter->subset || subset_has(waiter->subset, &endpoint->address)) &&
           (!waiter->selection || subset_has(waiter->selection, &endpoint->address));
}

static bool has_preferred_endpoint(const struct pool *pool) {
    const struct ranking *ranking = &pool->ranking;
    return ranking->n > 0 && ranking_key(ranking, ranking->order[0]) < ENDPOINT_LIMITED;
}

/* Whether the waiter may use an endpoint that is not avoided: an avoided one is only for requests
 * that have no other. */
static bool has_preferred_member(const struct pool *pool, const struct pool_waiter *waiter) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    bool found = false;
    if (!has_preferred_endpoint(pool)) {
        return false;
    }
    if (!is_restricted(waiter)) {
        return true;
    }
    for (size_t i = 0; waiter->members && !found && i < count_words(snapshot); i++) {
        found = (waiter->members[i] & snapshot->preferred[i]) != 0;
    }
    for (uint32_t i = 0; !waiter->members && !found && i < snapshot->n_members; i++) {
        found = (snapshot->preferred[i / 64] >> i % 64 & 1) &&
                has_member(waiter, snapshot->members[i].endpoint);
    }
    return found;
}

/* None of the endpoints in its subset is in the pool any more. */
static bool is_orphaned(const struct pool_snapshot *snapshot, const struct pool_waiter *waiter) {
    if (!is_restricted(waiter)) {
        return snapshot->n_members == 0;
    }
    bool any = !waiter->members;
    for (size_t i = 0; !any && i < count_words(snapshot); i++) {
        any = waiter->members[i] != 0;
    }
    return !any;
}

struct wait_target {
    struct pool *pool;
    struct endpoint *endpoint; /* in the newest snapshot */
    struct endpoint *found;    /* of can_be_sent */
};

static bool can_use_target(void *user, const struct flow_item *item) {
    const struct wait_target *target = user;
    struct pool_waiter *waiter = (struct pool_waiter *)(void *)(uintptr_t)item;
    pool_waiter_resolve(target->pool->snapshot, waiter);
    return (!is_restricted(waiter) || has_member(waiter, target->endpoint)) &&
           !(endpoint_is_avoided(target->endpoint) && has_preferred_member(target->pool, waiter)) &&
           !is_over_ceiling(target->pool, item, target->endpoint->member);
}

/* ---- a pool without endpoints ---------------------------------------------------------------- */

bool pool_awaits_endpoint(const struct pool *pool) {
    return pool->snapshot->spec->flow_control.no_endpoint_wait_ns > 0 && pool->ranking.n == 0;
}

/* Both limits are checked when the shorter one has passed: which of them holds may change. */
static uint64_t first_deadline(const struct pool *pool, uint64_t max_wait_ns, uint64_t now_ns) {
    uint64_t other_ns = pool->snapshot->spec->flow_control.no_endpoint_wait_ns;
    return now_ns + (other_ns > 0 && other_ns < max_wait_ns ? other_ns : max_wait_ns);
}

bool pool_waiter_has_expired(struct pool *pool, struct pool_waiter *waiter,
                             struct pool_wait_expiry *out) {
    uint64_t clock_ns = clock_now_ns();
    uint64_t now_ns = clock_ns > waiter->until_ns ? clock_ns : waiter->until_ns;
    lock_acquire(&pool->lock);
    uint64_t other_ns = pool->snapshot->spec->flow_control.no_endpoint_wait_ns;
    uint64_t since_ns = waiter->item.queued_ns;
    *out = (struct pool_wait_expiry){POOL_WAIT_MAX_WAIT, waiter->max_wait_ns};
    if (pool_awaits_endpoint(pool)) {
        *out = (struct pool_wait_expiry){POOL_WAIT_NO_ENDPOINT, other_ns};
    }
    if (other_ns > 0 && pool->readiness_since_ns > since_ns) {
        since_ns = pool->readiness_since_ns;
    }
    lock_release(&pool->lock);
    uint64_t until_ns = since_ns + out->waited_ns;
    if (until_ns <= now_ns) {
        return true;
    }
    uint64_t shorter_ns =
        other_ns > 0 && other_ns < waiter->max_wait_ns ? other_ns : waiter->max_wait_ns;
    waiter->until_ns = until_ns - now_ns < shorter_ns ? until_ns : now_ns + shorter_ns;
    return false;
}

/* ---- notifying ------------------------------------------------------------------------------- */

/* Under the wakeup's lock. */
static void add_notification(struct pool_wakeup *wakeup, struct pool_notifications *notifications) {
    if (!wakeup->notify_pending) {
        wakeup->notify_pending = true;
        wakeup->next = notifications->first;
        notifications->first = wakeup;
    }
}

void pool_wakeup_append(struct pool_waiter *waiter, struct pool_notifications *notifications) {
    struct pool_wakeup *wakeup = waiter->wakeup;
    lock_acquire(&wakeup->lock);
    waiter->in_wakeup_list = true;
    TAILQ_INSERT_TAIL(&wakeup->items, &waiter->item, link);
    add_notification(wakeup, notifications);
    lock_release(&wakeup->lock);
}

void pool_wakeup_release_held(struct burst_member *member,
                              struct pool_notifications *notifications) {
    struct pool_wakeup *wakeup = member->wakeup;
    lock_acquire(&wakeup->lock);
    member->is_released = true;
    TAILQ_INSERT_TAIL(&wakeup->released, member, link);
    add_notification(wakeup, notifications);
    lock_release(&wakeup->lock);
}

void pool_wakeup_forget_held(struct burst_member *member) {
    lock_acquire(&member->wakeup->lock);
    if (member->is_released) {
        TAILQ_REMOVE(&member->wakeup->released, member, link);
        member->is_released = false;
    }
    lock_release(&member->wakeup->lock);
}

/* Under the wakeup's lock. */
static void wakeup_remove(struct pool_waiter *waiter) {
    TAILQ_REMOVE(&waiter->wakeup->items, &waiter->item, link);
    waiter->in_wakeup_list = false;
}

void pool_wakeup_forget(struct pool_waiter *waiter) {
    lock_acquire(&waiter->wakeup->lock);
    if (waiter->in_wakeup_list) {
        wakeup_remove(waiter);
    }
    lock_release(&waiter->wakeup->lock);
}

static void notify_waiter(struct pool *pool, struct pool_waiter *waiter, struct endpoint *endpoint,
                          struct pool_notifications *notifications) {
    flow_notify(&pool->flow, &waiter->item);
    count_unrestricted(pool, waiter, false);
    waiter->reserved = endpoint;
    if (endpoint) {
        pool_reserve_slot(pool, waiter);
    }
    pool_wakeup_append(waiter, notifications);
}

static void advance_capacity_epoch(struct pool *pool) {
    uint64_t capacity_epoch = atomic_load_explicit(&pool->capacity_epoch, memory_order_relaxed);
    lock_assert_held(&pool->lock);
    atomic_store_explicit(&pool->capacity_epoch, capacity_epoch + 1, memory_order_relaxed);
}

/* A stalled endpoint is offered to one waiter per STALLED_NS: profile filters mostly depend on the
 * endpoint's labels, so what one waiter could not use the next cannot either. Returns: the number
 * of waiters to notify at most. */
static uint64_t max_notifications(const struct pool *pool, struct endpoint *endpoint) {
    uint64_t now_ns =
        endpoint->stalled_until_ns > 0 && pool->flow.n_queued > 0 ? clock_now_ns() : 0;
    if (now_ns == 0) {
        return UINT64_MAX;
    }
    bool again = endpoint->stalled_until_ns <= now_ns;
    endpoint->stalled_until_ns = again ? now_ns + STALLED_NS : endpoint->stalled_until_ns;
    return again;
}

/* An endpoint that is avoided, or whose window has been used up since, is no reason: it is offered
 * again as soon as that ends. */
void pool_set_stalled(struct pool *pool, struct endpoint *endpoint, bool stalled) {
    lock_assert_held(&pool->lock);
    bool is_usable = !endpoint_is_avoided(endpoint) && has_capacity(pool, endpoint);
    endpoint->stalled_until_ns = stalled && is_usable ? clock_now_ns() + STALLED_NS : 0;
}

/* The first waiter that can use the endpoint. A search that finds none looks at every waiter: it is
 * not repeated until one may have come. */
static struct flow_item *find_waiter(struct wait_target *target) {
    struct pool *pool = target->pool;
    if (target->endpoint->unwanted_epoch == pool->queue_epoch) {
        return NULL;
    }
    pool->n_searches++;
    struct flow_item *item = flow_find(&pool->flow, can_use_target, target);
    if (!item && !pool->snapshot->ceilings) { /* with ceilings it depends on the load as well */
        target->endpoint->unwanted_epoch = pool->queue_epoch;
    }
    return item;
}

/* How many places of waiters, about, are looked at while the lock is held. */
enum { MAX_VISITS = 20000 };

/* ---- notifying: a pool that is measured as a whole ------------------------------------------- */

/* An endpoint that the waiter may use, preferably the target's. Returns: NULL: there is none. */
static struct endpoint *find_usable(const struct wait_target *target,
                                    const struct pool_waiter *waiter) {
    const struct pool *pool = target->pool;
    const struct pool_snapshot *snapshot = pool->snapshot;
    struct endpoint *preferred = target->endpoint;
    if (preferred && preferred->in_pool && endpoint_is_eligible(preferred) &&
        (!is_restricted(waiter) || has_member(waiter, preferred))) {
        return preferred;
    }
    if (!is_restricted(waiter)) {
        return pool->ranking.n > 0 ? CONTAINER_OF(pool->ranking.order[0], struct endpoint, ranked)
                                   : NULL;
    }
    for (size_t i = 0; waiter->members && i < count_words(snapshot); i++) {
        uint64_t usable = waiter->members[i] & snapshot->preferred[i];
        if (usable != 0) {
            return snapshot->members[i * 64 + (size_t)__builtin_ctzll(usable)].endpoint;
        }
    }
    for (uint32_t i = 0; i < snapshot->n_members; i++) { /* one that is avoided */
        struct endpoint *endpoint = snapshot->members[i].endpoint;
        if (endpoint_is_eligible(endpoint) && has_member(waiter, endpoint)) {
            return endpoint;
        }
    }
    return NULL;
}

static bool can_be_sent(void *user, const struct flow_item *item) {
    struct wait_target *target = user;
    struct pool *pool = target->pool;
    struct pool_waiter *waiter = (struct pool_waiter *)(void *)(uintptr_t)item;
    if (pool_is_gate_closed(
            pool, pool_gate_of(pool->snapshot, flow_priority(item), current_cycle(pool)))) {
        return false;
    }
    pool_waiter_resolve(pool->snapshot, waiter);
    target->found = find_usable(target, waiter);
    return target->found != NULL;
}

/* `endpoint`: that has changed, or NULL. Returns: there is more to do. */
static bool notify_by_pool(struct pool *pool, struct endpoint *endpoint,
                           struct pool_notifications *notifications) {
    struct wait_target target = {.pool = pool, .endpoint = endpoint};
    uint64_t n_visits = 0;
    while (pool->flow.n_queued > 0 && n_visits <= MAX_VISITS && pool->ranking.n > 0 &&
           !pool_is_gate_closed(pool, widest_gate(pool))) {
        struct flow_item *item = flow_find(&pool->flow, can_be_sent, &target);
        if (!item) {
            break;
        }
        n_visits += 64 + pool->flow.n_places;
        notify_waiter(pool, waiter_of(item), target.found, notifications);
    }
    pool_evict(pool, notifications);
    return n_visits > MAX_VISITS;
}

/* ---- notifying: endpoints one by one --------------------------------------------------------- */

void pool_notify_waiters(struct pool *pool, struct endpoint *endpoint,
                         struct pool_notifications *notifications) {
    struct wait_target target = {.pool = pool, .endpoint = endpoint};
    advance_capacity_epoch(pool);
    atomic_fetch_add_explicit(&pool->n_cycles, 1, memory_order_relaxed);
    if (pool_spec_is_by_pool(pool->snapshot->spec)) {
        (void)notify_by_pool(pool, endpoint, notifications); /* the next tick does the rest */
        return;
    }
    for (uint64_t most = max_notifications(pool, endpoint);
         most > 0 && pool->flow.n_queued > 0 && has_capacity(pool, endpoint); most--) {
        struct flow_item *item = find_waiter(&target);
        if (!item) {
            break;
        }
        notify_waiter(pool, waiter_of(item), endpoint, notifications);
    }
}

bool pool_lacks_capacity(struct pool *pool, const struct endpoint *endpoint) {
    return pool->snapshot->ceilings || pool_spec_is_by_pool(pool->snapshot->spec) ||
           endpoint_is_window_full(endpoint) || !has_capacity(pool, endpoint);
}

void pool_notify_if_awaited(struct pool *pool, struct endpoint *endpoint, bool awaited,
                            struct pool_notifications *notifications) {
    if (awaited) {
        pool_notify_waiters(pool, endpoint, notifications);
    } else {
        advance_capacity_epoch(pool);
    }
}

void pool_release_capacity(struct pool *pool, struct endpoint *endpoint, uint64_t number,
                           struct pool_notifications *notifications) {
    bool awaited = pool_is_capacity_awaited(pool, endpoint);
    endpoint_forget_older(endpoint, number);
    endpoint_remove_request(pool, endpoint);
    pool_notify_if_awaited(pool, endpoint, awaited, notifications);
}

/* The members that have capacity, and the first waiter that may use one of them. */
struct free_members {
    struct pool *pool;
    uint64_t *set;
    struct endpoint *endpoint; /* found */
};

static bool find_free_member(void *user, const struct flow_item *item) {
    struct free_members *free_members = user;
    struct pool_waiter *waiter = (struct pool_waiter *)(void *)(uintptr_t)item;
    const struct pool_snapshot *snapshot = free_members->pool->snapshot;
    pool_waiter_resolve(snapshot, waiter);
    bool preferred = waiter->members && has_preferred_member(free_members->pool, waiter);
    for (size_t i = 0; waiter->members && i < count_words(snapshot); i++) {
        uint64_t usable = waiter->members[i] & free_members->set[i] &
                          (preferred ? snapshot->preferred[i] : UINT64_MAX);
        for (; usable != 0; usable &= usable - 1) {
            uint32_t member = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(usable);
            if (!is_over_ceiling(free_members->pool, item, member)) {
                free_members->endpoint = snapshot->members[member].endpoint;
                return true;
            }
        }
    }
    return false;
}

/* Returns: how many there are. */
static uint32_t mark_free_members(struct free_members *free_members) {
    const struct pool_snapshot *snapshot = free_members->pool->snapshot;
    uint64_t now_ns = clock_now_ns();
    uint32_t n = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct endpoint *endpoint = snapshot->members[i].endpoint;
        if (endpoint->stalled_until_ns <= now_ns && endpoint_is_eligible(endpoint) &&
            !pool_is_member_full(snapshot, i, NULL, widest_gate(free_members->pool), now_ns)) {
            free_members->set[i / 64] |= UINT64_C(1) << i % 64;
            n++;
        }
    }
    return n;
}

/* Those waiters with subsets are searched that have a member with capacity. Out of memory the next
 * tick does it. Returns: there is more to do. */
static bool notify_restricted_waiters(struct pool *pool, struct pool_notifications *notifications) {
    struct free_members free_members = {.pool = pool};
    uint64_t n_visits = 0;
    bool more = false;
    advance_capacity_epoch(pool);
    if (pool->flow.n_queued == atomic_load_explicit(&pool->n_unrestricted, memory_order_relaxed)) {
        return false;
    }
    free_members.set = calloc(count_words(pool->snapshot) + 1, sizeof(*free_members.set));
    bool any = free_members.set && mark_free_members(&free_members) > 0;
    while (any && !more && pool->flow.n_queued > 0 &&
           flow_find(&pool->flow, find_free_member, &free_members)) {
        uint32_t member = free_members.endpoint->member;
        n_visits += 2 * pool->flow.n_places;
        pool_notify_waiters(pool, free_members.endpoint, notifications);
        free_members.set[member / 64] &= ~(UINT64_C(1) << member % 64); /* no waiter can use it */
        more = n_visits > MAX_VISITS;
    }
    free(free_members.set);
    return more;
}

/* While any endpoint is not avoided, an avoided one is of use to waiters with subsets only. */
bool pool_notify_all_waiters(struct pool *pool, struct pool_notifications *notifications) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    bool preferred = has_preferred_endpoint(pool);
    if (pool_spec_is_by_pool(snapshot->spec)) {
        advance_capacity_epoch(pool);
        atomic_fetch_add_explicit(&pool->n_cycles, 1, memory_order_relaxed);
        return notify_by_pool(pool, NULL, notifications);
    }
    uint64_t n_queued = pool->flow.n_queued;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint *endpoint = snapshot->members[i].endpoint;
        if (atomic_load_explicit(&pool->n_unrestricted, memory_order_relaxed) == 0) {
            break;
        }
        if ((n_queued - pool->flow.n_queued) * (64 + pool->flow.n_places) > MAX_VISITS) {
            return true;
        }
        if (!preferred || !endpoint_is_avoided(endpoint)) {
            pool_notify_waiters(pool, endpoint, notifications);
        }
    }
    return notify_restricted_waiters(pool, notifications);
}

static bool is_queued(void *user, const struct flow_item *item) {
    (void)user;
    return item->state == FLOW_QUEUED;
}

static bool is_configured_priority(const void *user, int64_t priority) {
    const struct pool_spec *spec = user;
    for (size_t i = 0; i < spec->n_objectives; i++) {
        if (spec->objectives[i].priority == priority) {
            return true;
        }
    }
    return priority == POOL_PRIORITY_STANDARD || priority == POOL_PRIORITY_CRITICAL;
}

/* Waiters of which the subset is resolved, for the first time since the update, in one go. */
enum { MAX_RESOLVED = 16 };

struct orphaned_list {
    const struct pool *pool;
    STAILQ_HEAD(, pool_waiter) waiters;
    size_t n_resolved;
};

/* Each waiter is visited once. Returns: enough were resolved. */
static bool collect_orphaned(void *user, struct flow_item *item) {
    struct orphaned_list *orphaned = user;
    const struct pool_snapshot *snapshot = orphaned->pool->snapshot;
    struct pool_waiter *waiter = waiter_of(item);
    bool stale = is_restricted(waiter) && waiter->members_generation != snapshot->generation;
    pool_waiter_resolve(snapshot, waiter);
    if (!pool_awaits_endpoint(orphaned->pool) && is_orphaned(snapshot, waiter)) {
        STAILQ_INSERT_TAIL(&orphaned->waiters, waiter, orphaned_link);
    }
    orphaned->n_resolved += stale;
    return orphaned->n_resolved >= MAX_RESOLVED;
}

/* Resolves the subsets of waiters, and notifies those whose endpoints have all left the pool, so
 * that they are refused. Returns: there is more to do. */
static bool settle_some(struct pool *pool, struct pool_notifications *notifications) {
    struct orphaned_list orphaned = {.pool = pool};
    struct pool_waiter *waiter;
    STAILQ_INIT(&orphaned.waiters);
    bool more = flow_visit(&pool->flow, collect_orphaned, &orphaned);
    STAILQ_FOREACH(waiter, &orphaned.waiters, orphaned_link) {
        notify_waiter(pool, waiter, NULL, notifications);
    }
    return more || pool_notify_all_waiters(pool, notifications);
}

void pool_settle_waiters(struct pool *pool) {
    for (bool more = true; more;) {
        struct pool_notifications notifications = {NULL};
        lock_acquire(&pool->lock);
        more = settle_some(pool, &notifications);
        lock_release(&pool->lock);
        pool_send_notifications(&notifications);
    }
}

/* When flow control was switched off every waiter is notified. */
void pool_notify_after_update(struct pool *pool, struct pool_notifications *notifications) {
    const struct pool_spec *spec = pool->snapshot->spec;
    while (!spec->flow_control.on && pool->flow.n_queued > 0) {
        notify_waiter(pool, waiter_of(flow_find(&pool->flow, is_queued, NULL)), NULL,
                      notifications);
    }
    for (uint32_t i = 0; i < pool->snapshot->n_members; i++) {
        pool->snapshot->members[i].endpoint->stalled_until_ns = 0;
    }
    advance_capacity_epoch(pool);
    pool->queue_epoch++;
    pool->flow.program_rules = spec->flow_control.programs;
    flow_remove_idle_bands(&pool->flow, is_configured_priority, spec);
}

void pool_send_notifications(struct pool_notifications *notifications) {
    while (notifications->first) {
        struct pool_wakeup *wakeup = notifications->first;
        notifications->first = wakeup->next;
        lock_acquire(&wakeup->lock);
        wakeup->notify_pending = false;
        lock_release(&wakeup->lock);
        wakeup->notify(wakeup->user);
    }
}

/* ---- queueing -------------------------------------------------------------------------------- */

static enum status queue_full_error(const struct pool_spec *spec, enum flow_full full,
                                    int64_t priority, struct error *err) {
    const struct flow_limits *limits = &spec->flow_control.limits;
    if (full == FLOW_FULL_BYTES) {
        return error_set(
            err, ST_SATURATED,
            "request queue full: queued requests exceed flow_control.max_bytes (%llu bytes)",
            (unsigned long long)limits->max_bytes);
    }
    if (full == FLOW_FULL_BAND || full == FLOW_FULL_BAND_BYTES) {
        return error_set(
            err, ST_SATURATED,
            "request queue full: priority %lld has reached its limit of %s (flow_control.bands)",
            (long long)priority, full == FLOW_FULL_BAND ? "requests" : "bytes");
    }
    return error_set(err, ST_SATURATED,
                     "request queue full: %llu requests are waiting (flow_control.max_requests)",
                     (unsigned long long)limits->max_requests);
}

/* The waiter is queued no longer; its worker refuses it. */
static void displace(struct pool *pool, struct pool_waiter *waiter,
                     struct pool_notifications *notifications) {
    count_unrestricted(pool, waiter, false);
    flow_remove(&pool->flow, &waiter->item, FLOW_DISPLACED, clock_now_ns());
    waiter->displaced = true;
    pool_wakeup_append(waiter, notifications);
}

/* The waiter has been queued: it may use endpoints that no waiter could use before. */
static void note_queued(struct pool *pool, const struct pool_waiter *waiter) {
    enum { FEW = 16 };
    const struct pool_snapshot *snapshot = pool->snapshot;
    size_t n = 0;
    bool is_resolved = waiter->members && waiter->members_generation == snapshot->generation;
    for (size_t i = 0; is_resolved && i < count_words(snapshot); i++) {
        n += (size_t)__builtin_popcountll(waiter->members[i]);
    }
    if (!is_resolved || n > FEW) {
        pool->queue_epoch++;
        return;
    }
    for (size_t i = 0; i < count_words(snapshot); i++) {
        for (uint64_t left = waiter->members[i]; left != 0; left &= left - 1) {
            size_t member = i * 64 + (size_t)__builtin_ctzll(left);
            snapshot->members[member].endpoint->unwanted_epoch = 0;
        }
    }
}

static void add_to_hash(const struct pool *pool, const struct subset *subset,
                        struct keyed_hash *hash) {
    for (size_t i = 0; subset && i < subset->n; i++) {
        const struct endpoint_address *address = &subset->items[i];
        uint64_t text[] = {hash->low, hash->high, address->high, address->low,
                           (uint64_t)address->family << 16 | address->port};
        *hash = keyed_hash_of(&pool->flow.key, str_make((const char *)text, sizeof(text)));
    }
}

/* Waiters with equal lists of addresses fit the same endpoints. */
static struct keyed_hash place_of(const struct pool *pool, const struct pool_request *request) {
    struct keyed_hash hash = {request->subset != NULL,
                              (request->selection != NULL) ^ request->waiter->profile};
    add_to_hash(pool, request->subset, &hash);
    hash.high ^= request->selection ? UINT64_MAX : 0;
    add_to_hash(pool, request->selection, &hash);
    return hash;
}

enum status pool_displaced_error(struct error *err) {
    return error_set(err, ST_SATURATED,
                     "request queue full: a request of a higher priority, or of a fairness id with "
                     "fewer waiting requests, took the place of this one (flow_control)");
}

/* A request for which others may have to give up their places. */
struct place_wanted {
    struct pool *pool;
    int64_t priority;
    struct str fairness_id;
    uint64_t n_bytes;
    const struct flow_item *grown; /* it is queued, and has grown; NULL: it is new */
};

static enum flow_full check_place(const struct place_wanted *wanted) {
    const struct flow_limits *limits = &wanted->pool->snapshot->spec->flow_control.limits;
    return wanted->grown
               ? flow_check_bytes(&wanted->pool->flow, limits, wanted->grown)
               : flow_check_limits(&wanted->pool->flow, limits, wanted->priority, wanted->n_bytes);
}

/* Displaces the others where it then fits, otherwise none. At most so many are displaced for one,
 * whose bytes the limit has no room for. Returns: FLOW_FITS, or the limit that keeps it out. */
static enum flow_full make_place(const struct place_wanted *wanted,
                                 struct pool_notifications *notifications) {
    enum { MAX_DISPLACED = 64 };
    struct flow_item *victims[MAX_DISPLACED];
    struct flow *flow = &wanted->pool->flow;
    enum flow_full full = check_place(wanted);
    size_t n = 0;
    while (full != FLOW_FITS && n < MAX_DISPLACED) {
        struct flow_item *victim = flow_find_victim(
            flow, full, wanted->priority, wanted->fairness_id, wanted->n_bytes, wanted->grown);
        if (!victim || victim == wanted->grown) {
            break;
        }
        flow_set_aside(flow, victim);
        victims[n++] = victim;
        full = check_place(wanted);
    }
    for (size_t i = n; i-- > 0;) {
        flow_put_back(flow, victims[i]);
    }
    for (size_t i = 0; full == FLOW_FITS && i < n; i++) {
        displace(wanted->pool, waiter_of(victims[i]), notifications);
    }
    return full;
}

/* Of a request whose client said when it expects the first token. A value that is no number of
 * milliseconds, or too large, is none. */
static uint64_t deadline_of(const struct flow_band_rules *rules, const struct pool_request *request,
                            uint64_t now_ns) {
    static const char HEADER[] = "x-llm-d-slo-ttft-ms";
    enum { NS_PER_MS = 1000000 };
    struct str value = {NULL, 0};
    uint64_t ms;
    if (rules->ordering == FLOW_BY_DEADLINE && request->headers.find) {
        value = str_trim(request->headers.find(request->headers.of, str_of(HEADER)));
    }
    bool is_valid = value.len > 0 && num_parse_u64(value, &ms) &&
                    ms <= (uint64_t)INT64_MAX / NS_PER_MS - now_ns / NS_PER_MS - 1;
    return is_valid ? now_ns + ms * NS_PER_MS : 0;
}

enum status pool_enqueue(struct pool_reader *reader, const struct pool_request *request,
                         int64_t priority, struct pool_notifications *notifications,
                         struct error *err) {
    struct pool *pool = reader->pool;
    const struct pool_spec *spec = pool->snapshot->spec;
    struct pool_waiter *waiter = request->waiter;
    lock_assert_held(&pool->lock);
    if (waiter->notified) {
        waiter->notified = false;
        flow_requeue(&pool->flow, &waiter->item);
        count_unrestricted(pool, waiter, true);
        note_queued(pool, waiter);
        pool_evict(pool, notifications);
        return ST_OK;
    }
    enum flow_full full = make_place(&(struct place_wanted){.pool = pool,
                                                            .priority = priority,
                                                            .fairness_id = request->fairness_id,
                                                            .n_bytes = request->n_bytes},
                                     notifications);
    if (full != FLOW_FITS) {
        flow_count_rejected(&pool->flow, priority);
        if (pool_awaits_endpoint(pool)) {
            return error_set(err, ST_NO_ENDPOINT,
                             "none of the pool's %u endpoints is ready, and the request queue is "
                             "full (flow_control)",
                             pool->snapshot->n_members);
        }
        return queue_full_error(spec, full, priority, err);
    }
    const struct flow_band_rules *rules = flow_limits_rules(&spec->flow_control.limits, priority);
    uint64_t now_ns = clock_now_ns();
    uint64_t *members = waiter->members;
    uint64_t members_generation = waiter->members_generation;
    uint64_t max_wait_ns =
        rules->max_wait_ns > 0 ? rules->max_wait_ns : spec->flow_control.max_wait_ns;
    *waiter = (struct pool_waiter){.item = {.n_bytes = request->n_bytes},
                                   .wakeup = waiter->wakeup,
                                   .subset = request->subset,
                                   .selection = request->selection,
                                   .profile = waiter->profile,
                                   .n_tokens = request->n_tokens,
                                   .members = members,
                                   .members_generation = members_generation,
                                   .max_wait_ns = max_wait_ns,
                                   .until_ns = first_deadline(pool, max_wait_ns, now_ns)};
    if (!flow_add(&pool->flow, &waiter->item,
                  &(struct flow_arrival){.priority = priority,
                                         .fairness_id = request->fairness_id,
                                         .place = place_of(pool, request),
                                         .rules = rules,
                                         .deadline_ns = deadline_of(rules, request, now_ns),
                                         .now_ns = now_ns})) {
        return error_no_memory(err, "a queued request");
    }
    count_unrestricted(pool, waiter, true);
    pool_waiter_resolve(pool->snapshot, waiter);
    note_queued(pool, waiter);
    pool_evict(pool, notifications);
    return ST_OK;
}

void pool_begin_turn(struct pool *pool, struct pool_ticket *ticket) {
    lock_acquire(&pool->lock);
    if (pool->flow.program_rules.strategy == PROGRAMS_DEEPEST) {
        flow_begin_turn(&pool->flow, ticket->program, clock_now_ns());
        ticket->has_turn = true;
    }
    lock_release(&pool->lock);
}

/* Tokens of the output cost twice as much as those of the prompt. */
void pool_count_service(struct pool *pool, struct pool_ticket *ticket, uint64_t n_prompt,
                        uint64_t n_output) {
    bool is_known = n_prompt + n_output > 0;
    double cost = is_known ? (double)n_prompt + 2 * (double)n_output : (double)ticket->n_estimated;
    if (ticket->has_program) {
        lock_acquire(&pool->lock);
        flow_add_service(&pool->flow, ticket->program, cost, clock_now_ns());
        lock_release(&pool->lock);
        ticket->has_program = ticket->has_turn = false;
    }
}

void pool_dequeue_locked(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome,
                         struct pool_notifications *notifications) {
    struct endpoint *reserved = waiter->reserved;
    lock_assert_held(&pool->lock);
    if (waiter->item.state == FLOW_IDLE && !waiter->displaced) {
        return;
    }
    pool_wakeup_forget(waiter);
    if (waiter->item.state == FLOW_QUEUED) {
        count_unrestricted(pool, waiter, false);
    }
    flow_remove(&pool->flow, &waiter->item, outcome, clock_now_ns());
    pool_waiter_forget(waiter);
    waiter->notified = waiter->displaced = false;
    if (reserved) {
        bool awaited = pool_is_capacity_awaited(pool, reserved);
        pool_release_slot(pool, waiter);
        waiter->reserved = NULL;
        pool_notify_if_awaited(pool, reserved, awaited, notifications);
    }
}

void pool_dequeue(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome) {
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    pool_dequeue_locked(pool, waiter, outcome, &notifications);
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
}

bool pool_waiter_add_bytes(struct pool *pool, struct pool_waiter *waiter, uint64_t n_bytes) {
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->lock);
    enum flow_full full = FLOW_FITS;
    if (waiter->item.state != FLOW_IDLE) {
        flow_add_bytes(&pool->flow, &waiter->item, n_bytes);
        full = make_place(&(struct place_wanted){.pool = pool,
                                                 .priority = flow_priority(&waiter->item),
                                                 .grown = &waiter->item},
                          &notifications);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
    return full == FLOW_FITS;
}

void pool_tick(struct pool *pool, uint64_t gap_ns) {
    uint64_t now_ns = clock_now_ns();
    uint64_t then_ns = atomic_load_explicit(&pool->ticked_ns, memory_order_relaxed);
    if (now_ns < then_ns + gap_ns) {
        return;
    }
    atomic_store_explicit(&pool->ticked_ns, now_ns, memory_order_relaxed);
    for (bool more = true; more;) {
        struct pool_notifications notifications = {NULL};
        lock_acquire(&pool->lock);
        endpoint_try_due(pool, now_ns);
        more = pool_notify_all_waiters(pool, &notifications);
        lock_release(&pool->lock);
        pool_send_notifications(&notifications);
    }
}

/* ---- readers of pools that are waited for ---------------------------------------------------- */

void pool_waited_add(struct pool_waited *waited, struct pool_reader *reader) {
    if (reader->n_waiting++ == 0) {
        LIST_INSERT_HEAD(&waited->readers, reader, waited_link);
    }
}

void pool_waited_remove(struct pool_reader *reader) {
    assert(reader->n_waiting > 0);
    if (--reader->n_waiting == 0) {
        LIST_REMOVE(reader, waited_link);
    }
}

void pool_waited_tick(const struct pool_waited *waited, uint64_t gap_ns) {
    struct pool_reader *reader;
    LIST_FOREACH(reader, &waited->readers, waited_link) {
        pool_tick(reader->pool, gap_ns);
    }
}

bool pool_waited_evicts(const struct pool_waited *waited) {
    const struct pool_reader *reader;
    LIST_FOREACH(reader, &waited->readers, waited_link) {
        if (reader->snapshot->spec->flow_control.evicts) {
            return true;
        }
    }
    return false;
}

void pool_waited_evict(const struct pool_waited *waited) {
    struct pool_reader *reader;
    LIST_FOREACH(reader, &waited->readers, waited_link) {
        if (reader->snapshot->spec->flow_control.evicts) {
            struct pool_notifications notifications = {NULL};
            lock_acquire(&reader->pool->lock);
            pool_evict(reader->pool, &notifications);
            lock_release(&reader->pool->lock);
            pool_send_notifications(&notifications);
        }
    }
}

/* ---- wakeups --------------------------------------------------------------------------------- */

void pool_wakeup_init(struct pool_wakeup *wakeup, void (*notify)(void *user), void *user) {
    *wakeup = (struct pool_wakeup){.notify = notify, .user = user};
    TAILQ_INIT(&wakeup->items);
    TAILQ_INIT(&wakeup->released);
    lock_init(&wakeup->lock);
}

void pool_wakeup_fini(struct pool_wakeup *wakeup) {
    assert(TAILQ_EMPTY(&wakeup->items) && TAILQ_EMPTY(&wakeup->released));
    lock_fini(&wakeup->lock);
}

struct pool_waiter *pool_wakeup_pop(struct pool_wakeup *wakeup) {
    lock_acquire(&wakeup->lock);
    struct flow_item *item = TAILQ_FIRST(&wakeup->items);
    struct pool_waiter *waiter = item ? waiter_of(item) : NULL;
    if (waiter) {
        wakeup_remove(waiter);
        waiter->notified = !waiter->lease.is_revoked;
    }
    lock_release(&wakeup->lock);
    return waiter;
}

struct burst_member *pool_wakeup_pop_released(struct pool_wakeup *wakeup) {
    lock_acquire(&wakeup->lock);
    struct burst_member *member = TAILQ_FIRST(&wakeup->released);
    if (member) {
        TAILQ_REMOVE(&wakeup->released, member, link);
        member->is_released = false;
    }
    lock_release(&wakeup->lock);
    return member;
}

/* ---- statistics ------------------------------------------------------------------------------ */

void pool_get_flow_stats(struct pool *pool, struct flow_band_stats *bands, size_t most,
                         struct pool_flow_stats *out) {
    lock_acquire(&pool->lock);
    const struct flow *flow = &pool->flow;
    *out = (struct pool_flow_stats){.n_waiting = flow->n_queued + flow->n_notified,
                                    .n_bytes = flow->n_bytes,
                                    .n_ids = flow->n_ids,
                                    .bands = bands,
                                    .n_bands = flow_get_stats(flow, bands, most)};
    lock_release(&pool->lock);
}
