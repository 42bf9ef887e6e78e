/* Who is called when there is room, and how callers and called meet: a called item stands in its
 * bell's list until it is taken out; it may leave the list, and the queue, at any time before. The
 * bell's lock is taken within the pool's. */
#include "pick/pool/flow/wait.h"

#include <assert.h>

#include "core/event/clock.h"
#include "pick/pool/state.h"

/* How long an endpoint with room is not tried again to which filters let nobody. */
static const uint64_t BARREN_NS = 1000000000;

static struct pool_waiter *waiter_of(struct flow_item *item) {
    return (struct pool_waiter *)(void *)item;
}

static void count_open(struct pool *pool, const struct pool_waiter *waiter, bool more) {
    if (!waiter->subset && !waiter->selection) {
        uint64_t n = atomic_load_explicit(&pool->n_open, memory_order_relaxed);
        atomic_store_explicit(&pool->n_open, more ? n + 1 : n - 1, memory_order_relaxed);
    }
}

/* ---- room ------------------------------------------------------------------------------------ */

const char *pool_full_of(const struct pool_snapshot *snapshot, uint32_t member, uint32_t in_flight,
                         uint64_t now_ns) {
    const struct pool_spec *spec = snapshot->spec;
    if (spec->max_in_flight > 0 && in_flight >= spec->max_in_flight) {
        return "max_in_flight";
    }
    if (!pool_limits_loads(spec)) {
        return NULL;
    }
    struct load_now load = load_look(&snapshot->loads[member], now_ns, in_flight);
    if (spec->queue_depth > 0 && load.known & LOAD_WAITING && load.n_waiting >= spec->queue_depth) {
        return "queue_depth";
    }
    bool used = spec->kv_cache > 0 && load.known & LOAD_KV_CACHE &&
                (double)load.kv_cache_used >= spec->kv_cache;
    return used ? "kv_cache" : NULL;
}

bool pool_is_full(const struct pool_snapshot *snapshot, uint32_t member,
                  const struct pool_waiter *waiter, uint64_t now_ns) {
    const struct endpoint *endpoint = snapshot->members[member].endpoint;
    uint32_t in_flight = endpoint_in_flight(endpoint);
    if (waiter && waiter->kept == endpoint && in_flight > 0) {
        in_flight--;
    }
    return pool_full_of(snapshot, member, in_flight, now_ns) != NULL;
}

static bool has_room(struct pool *pool, const struct endpoint *endpoint) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    const struct pool_member *member =
        endpoint_is_eligible(endpoint) ? pool_snapshot_find(snapshot, &endpoint->address) : NULL;
    return member &&
           !pool_is_full(snapshot, (uint32_t)(member - snapshot->members), NULL, clock_now_ns());
}

/* ---- who may go where ------------------------------------------------------------------------ */

/* Of the pool's newest snapshot: one that the waiter may go to, and that is `wanted`. */
static bool has_one(const struct pool *pool, const struct pool_waiter *waiter,
                    bool (*wanted)(const struct endpoint *endpoint)) {
    const struct subset *one = waiter->subset ? waiter->subset : waiter->selection;
    const struct subset *other = waiter->subset ? waiter->selection : NULL;
    for (size_t i = 0; i < one->n; i++) {
        size_t n;
        const struct pool_member *member = pool_snapshot_named(pool->snapshot, &one->items[i], &n);
        for (; n > 0; n--, member++) {
            if (wanted(member->endpoint) && (!other || subset_has(other, &member->address))) {
                return true;
            }
        }
    }
    return false;
}

static bool is_good(const struct endpoint *endpoint) {
    return endpoint_is_eligible(endpoint) && !endpoint_is_avoided(endpoint);
}

/* An endpoint that is avoided is for requests that may go to no other. */
static bool has_better(const struct pool *pool, const struct pool_waiter *waiter) {
    const struct ranking *ranking = &pool->ranking;
    if (!waiter->subset && !waiter->selection) {
        return ranking->n > 0 && ranking_key(ranking, ranking->order[0]) < ENDPOINT_REFUSED;
    }
    return has_one(pool, waiter, is_good);
}

static bool is_any(const struct endpoint *endpoint) {
    return endpoint->wanted;
}

/* None of the endpoints that it may go to is in the pool any more. */
static bool is_lost(const struct pool *pool, const struct pool_waiter *waiter) {
    return waiter->subset || waiter->selection ? !has_one(pool, waiter, is_any)
                                               : pool->snapshot->n_members == 0;
}

struct place {
    struct pool *pool;
    struct endpoint *endpoint;
    uint64_t now_ns;
};

static bool fits(void *context, const struct flow_item *item) {
    const struct place *place = context;
    const struct pool_waiter *waiter = (const struct pool_waiter *)(const void *)item;
    const struct endpoint_address *address = &place->endpoint->address;
    return (!waiter->subset || subset_has(waiter->subset, address)) &&
           (!waiter->selection || subset_has(waiter->selection, address)) &&
           !(endpoint_is_avoided(place->endpoint) && has_better(place->pool, waiter));
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void list(struct pool_waiter *waiter, struct pool_calls *calls) {
    struct pool_bell *bell = waiter->bell;
    lock_take(&bell->lock);
    waiter->listed = true;
    waiter->item.after = NULL;
    waiter->item.before = bell->last;
    *(bell->last ? &bell->last->after : &bell->first) = &waiter->item;
    bell->last = &waiter->item;
    if (!bell->ringing) {
        bell->ringing = true;
        bell->next = calls->first;
        calls->first = bell;
    }
    lock_drop(&bell->lock);
}

/* Under the bell's lock. */
static void unlist(struct pool_waiter *waiter) {
    struct pool_bell *bell = waiter->bell;
    struct flow_item *before = waiter->item.before, *after = waiter->item.after;
    *(before ? &before->after : &bell->first) = after;
    *(after ? &after->before : &bell->last) = before;
    waiter->item.before = waiter->item.after = NULL;
    waiter->listed = false;
}

static void call(struct pool *pool, struct pool_waiter *waiter, struct endpoint *endpoint,
                 struct pool_calls *calls) {
    flow_call(&pool->flow, &waiter->item);
    count_open(pool, waiter, false);
    waiter->kept = endpoint;
    if (endpoint) {
        endpoint_raise(pool, endpoint);
    }
    list(waiter, calls);
}

static void note_room(struct pool *pool) {
    uint64_t n_freed = atomic_load_explicit(&pool->n_freed, memory_order_relaxed);
    lock_assert_held(&pool->lock);
    atomic_store_explicit(&pool->n_freed, n_freed + 1, memory_order_relaxed);
}

/* Filters are mostly of the endpoint's labels: what is true of one that waits is so of the next,
 * and one is enough to find out whether it still is. Returns: how many are called at most. */
static uint64_t most_calls(const struct pool *pool, struct endpoint *endpoint) {
    uint64_t now_ns = endpoint->barren_ns > 0 && pool->flow.n_queued > 0 ? clock_now_ns() : 0;
    if (now_ns == 0) {
        return UINT64_MAX;
    }
    bool again = endpoint->barren_ns <= now_ns;
    endpoint->barren_ns = again ? now_ns + BARREN_NS : endpoint->barren_ns;
    return again;
}

void pool_note_barren(struct pool *pool, struct endpoint *endpoint, bool barren) {
    lock_assert_held(&pool->lock);
    endpoint->barren_ns = barren && has_room(pool, endpoint) ? clock_now_ns() + BARREN_NS : 0;
}

void pool_fill(struct pool *pool, struct endpoint *endpoint, struct pool_calls *calls) {
    struct place place = {.pool = pool, .endpoint = endpoint};
    note_room(pool);
    for (uint64_t most = most_calls(pool, endpoint);
         most > 0 && pool->flow.n_queued > 0 && has_room(pool, endpoint); most--) {
        struct flow_item *item = flow_first(&pool->flow, fits, &place);
        if (!item) {
            break;
        }
        call(pool, waiter_of(item), endpoint, calls);
    }
}

bool pool_awaits(struct pool *pool, const struct endpoint *endpoint) {
    return pool->flow.n_queued > 0 && !has_room(pool, endpoint);
}

void pool_fill_awaited(struct pool *pool, struct endpoint *endpoint, bool awaited,
                       struct pool_calls *calls) {
    if (awaited) {
        pool_fill(pool, endpoint, calls);
    } else {
        note_room(pool);
    }
}

void pool_lower(struct pool *pool, struct endpoint *endpoint, struct pool_calls *calls) {
    bool awaited = pool_awaits(pool, endpoint);
    endpoint_lower(pool, endpoint);
    pool_fill_awaited(pool, endpoint, awaited, calls);
}

/* Of what waits for a few endpoints only: one of these that has room. */
static bool has_place(void *context, const struct flow_item *item) {
    struct place *place = context;
    const struct pool_waiter *waiter = (const struct pool_waiter *)(const void *)item;
    const struct subset *one = waiter->subset ? waiter->subset : waiter->selection;
    for (size_t i = 0; one && i < one->n; i++) {
        size_t n;
        const struct pool_member *member =
            pool_snapshot_named(place->pool->snapshot, &one->items[i], &n);
        for (; n > 0; n--, member++) {
            place->endpoint = member->endpoint;
            if (place->endpoint->barren_ns <= place->now_ns &&
                has_room(place->pool, place->endpoint) && fits(place, item)) {
                return true;
            }
        }
    }
    return false;
}

/* Where all that waits may go to a few endpoints only, it is cheaper to look at those than at what
 * waits for each endpoint there is. */
static void fill_for_narrow(struct pool *pool, struct pool_calls *calls) {
    struct place place = {.pool = pool, .now_ns = clock_now_ns()};
    note_room(pool);
    while (pool->flow.n_queued > 0 && flow_first(&pool->flow, has_place, &place)) {
        pool_fill(pool, place.endpoint, calls);
    }
}

void pool_fill_all(struct pool *pool, struct pool_calls *calls) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    if (atomic_load_explicit(&pool->n_open, memory_order_relaxed) == 0) {
        fill_for_narrow(pool, calls);
        return;
    }
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        pool_fill(pool, snapshot->members[i].endpoint, calls);
    }
}

static bool is_anybody(void *context, const struct flow_item *item) {
    (void)context;
    return item->state == FLOW_QUEUED;
}

static bool has_priority(const void *context, int64_t priority) {
    const struct pool_spec *spec = context;
    for (size_t i = 0; i < spec->n_objectives; i++) {
        if (spec->objectives[i].priority == priority) {
            return true;
        }
    }
    return priority == POOL_PRIORITY_STANDARD || priority == POOL_PRIORITY_CRITICAL;
}

struct lost {
    const struct pool *pool;
    struct pool_waiter *first, **end;
};

/* Each is looked at once. */
static bool list_lost(void *context, const struct flow_item *item) {
    struct lost *lost = context;
    struct pool_waiter *waiter = (struct pool_waiter *)(void *)(uintptr_t)item;
    if (is_lost(lost->pool, waiter)) {
        waiter->next_lost = NULL;
        *lost->end = waiter;
        lost->end = &waiter->next_lost;
    }
    return false;
}

/* Nobody waits for what is not there. */
static void call_lost(struct pool *pool, struct pool_calls *calls) {
    struct lost lost = {.pool = pool};
    lost.end = &lost.first;
    (void)flow_first(&pool->flow, list_lost, &lost);
    for (struct pool_waiter *waiter = lost.first; waiter; waiter = waiter->next_lost) {
        call(pool, waiter, NULL, calls);
    }
}

/* Without flow control nobody waits. */
void pool_fill_anew(struct pool *pool, struct pool_calls *calls) {
    const struct pool_spec *spec = pool->snapshot->spec;
    while (!spec->flow_control.on && pool->flow.n_queued > 0) {
        call(pool, waiter_of(flow_first(&pool->flow, is_anybody, NULL)), NULL, calls);
    }
    call_lost(pool, calls);
    for (uint32_t i = 0; i < pool->snapshot->n_members; i++) {
        pool->snapshot->members[i].endpoint->barren_ns = 0;
    }
    pool_fill_all(pool, calls);
    flow_forget(&pool->flow, has_priority, spec);
}

void pool_ring(struct pool_calls *calls) {
    while (calls->first) {
        struct pool_bell *bell = calls->first;
        calls->first = bell->next;
        lock_take(&bell->lock);
        bell->ringing = false;
        lock_drop(&bell->lock);
        bell->ring(bell->user);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

static enum status say_full(const struct pool_spec *spec, enum flow_full full, int64_t priority,
                            struct error *err) {
    const struct flow_limits *limits = &spec->flow_control.limits;
    if (full == FLOW_FULL_BYTES) {
        return error_set(err, ST_SATURATED,
                         "every endpoint is full, and so is the queue: it may hold %llu bytes "
                         "(flow_control: max_bytes in the picker's configuration)",
                         (unsigned long long)limits->max_bytes);
    }
    if (full == FLOW_FULL_BAND) {
        return error_set(err, ST_SATURATED,
                         "every endpoint is full, and so is the queue of priority %lld "
                         "(flow_control: bands in the picker's configuration)",
                         (long long)priority);
    }
    return error_set(err, ST_SATURATED,
                     "every endpoint is full, and so is the queue: %llu requests may wait "
                     "(flow_control: max_requests in the picker's configuration)",
                     (unsigned long long)limits->max_requests);
}

enum status pool_enter(struct pool_reader *reader, const struct pool_request *request,
                       int64_t priority, struct error *err) {
    struct pool *pool = reader->pool;
    const struct pool_spec *spec = pool->snapshot->spec;
    struct pool_waiter *waiter = request->waiter;
    lock_assert_held(&pool->lock);
    if (waiter->called) {
        waiter->called = false;
        flow_put_back(&pool->flow, &waiter->item);
        count_open(pool, waiter, true);
        return ST_OK;
    }
    enum flow_full full =
        flow_check(&pool->flow, &spec->flow_control.limits, priority, request->n_bytes);
    if (full != FLOW_FITS) {
        flow_count_full(&pool->flow, priority);
        return say_full(spec, full, priority, err);
    }
    uint64_t now_ns = clock_now_ns();
    *waiter = (struct pool_waiter){.item = {.n_bytes = request->n_bytes},
                                   .bell = waiter->bell,
                                   .subset = request->subset,
                                   .selection = request->selection,
                                   .until_ns = now_ns + spec->flow_control.max_wait_ns};
    if (!flow_add(&pool->flow, &waiter->item, priority, request->fairness, now_ns)) {
        return error_set(err, ST_NO_MEMORY, "no memory for one more that waits");
    }
    count_open(pool, waiter, true);
    return ST_OK;
}

void pool_quit(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome,
               struct pool_calls *calls) {
    struct endpoint *kept = waiter->kept;
    lock_assert_held(&pool->lock);
    if (waiter->item.state == FLOW_OUT) {
        return;
    }
    lock_take(&waiter->bell->lock);
    if (waiter->listed) {
        unlist(waiter);
    }
    lock_drop(&waiter->bell->lock);
    if (waiter->item.state == FLOW_QUEUED) {
        count_open(pool, waiter, false);
    }
    flow_remove(&pool->flow, &waiter->item, outcome, clock_now_ns());
    waiter->called = false;
    waiter->kept = NULL;
    if (kept) {
        pool_lower(pool, kept, calls);
    }
}

void pool_leave(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome) {
    struct pool_calls calls = {NULL};
    lock_take(&pool->lock);
    pool_quit(pool, waiter, outcome, &calls);
    lock_drop(&pool->lock);
    pool_ring(&calls);
}

bool pool_waiter_grow(struct pool *pool, struct pool_waiter *waiter, uint64_t n_bytes) {
    lock_take(&pool->lock);
    if (waiter->item.state != FLOW_OUT) {
        flow_grow(&pool->flow, &waiter->item, n_bytes);
    }
    bool fit = pool->flow.n_bytes <= pool->snapshot->spec->flow_control.limits.max_bytes;
    lock_drop(&pool->lock);
    return fit;
}

void pool_tick(struct pool *pool, uint64_t gap_ns) {
    struct pool_calls calls = {NULL};
    uint64_t now_ns = clock_now_ns();
    uint64_t then_ns = atomic_load_explicit(&pool->ticked_ns, memory_order_relaxed);
    if (now_ns < then_ns + gap_ns) {
        return;
    }
    atomic_store_explicit(&pool->ticked_ns, now_ns, memory_order_relaxed);
    lock_take(&pool->lock);
    endpoint_forgive_due(pool, now_ns);
    pool_fill_all(pool, &calls);
    lock_drop(&pool->lock);
    pool_ring(&calls);
}

/* ---- the called ------------------------------------------------------------------------------ */

void pool_bell_init(struct pool_bell *bell, void (*ring)(void *user), void *user) {
    *bell = (struct pool_bell){.ring = ring, .user = user};
    lock_init(&bell->lock);
}

void pool_bell_fini(struct pool_bell *bell) {
    assert(!bell->first);
    lock_fini(&bell->lock);
}

struct pool_waiter *pool_bell_next(struct pool_bell *bell) {
    lock_take(&bell->lock);
    struct pool_waiter *waiter = bell->first ? waiter_of(bell->first) : NULL;
    if (waiter) {
        unlist(waiter);
        waiter->called = true;
    }
    lock_drop(&bell->lock);
    return waiter;
}

/* ---- a look from outside --------------------------------------------------------------------- */

void pool_read_flow(struct pool *pool, struct flow_band_numbers *bands, size_t most,
                    struct pool_flow_numbers *out) {
    lock_take(&pool->lock);
    const struct flow *flow = &pool->flow;
    *out = (struct pool_flow_numbers){.n_waiting = flow->n_queued + flow->n_called,
                                      .n_bytes = flow->n_bytes,
                                      .n_ids = flow->n_ids,
                                      .bands = bands,
                                      .n_bands = flow_read(flow, bands, most)};
    lock_drop(&pool->lock);
}
