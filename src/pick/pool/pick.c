/* The choice. What the request means is read from the snapshot without a lock; then, under the
 * pool's lock, the best is taken and its count raised. Should the pool have become another in
 * between, all of it is done again: a pick is always of the pool as it is at that moment. */
#include <assert.h>

#include "core/event/clock.h"
#include "pick/pool/state.h"

/* ---- the endpoint ---------------------------------------------------------------------------- */

/* Those whose time of being avoided is over count again. Without any, this is a load. */
static void expire_refusals(struct pool *pool) {
    uint64_t due_ns = atomic_load_explicit(&pool->next_refusal_expiry_ns, memory_order_relaxed);
    if (due_ns < UINT64_MAX && due_ns <= clock_now_ns()) {
        pool_tick(pool, 0);
    }
}

/* A pick, as far as it is. */
struct trial {
    struct pool_reader *reader;
    const struct pool_request *request;
    struct pool_pick *out;
    struct pool_shortlist best;
    bool chosen;             /* without the lock, which could be done */
    uint64_t capacity_epoch; /* before that */
};

static bool can_wait(const struct trial *trial) {
    return trial->request->waiter && !trial->out->sheddable &&
           trial->reader->snapshot->spec->flow_control.on;
}

/* Of the whole pool. */
static void choose_from_ranking(struct pool_reader *reader, struct pool_shortlist *best) {
    struct ranked *ranked[POOL_MAX_PICKED];
    best->n = ranking_find_lowest(&reader->pool->ranking, &reader->prng, best->most, ranked);
    for (size_t i = 0; i < best->n; i++) {
        best->endpoints[i] = (struct endpoint *)(void *)ranked[i];
    }
}

static bool is_first_full(const struct trial *trial, const struct pool_waiter *waiter) {
    const struct pool_snapshot *snapshot = trial->reader->snapshot;
    const struct endpoint *first = trial->best.endpoints[0];
    if (!pool_limits_loads(snapshot->spec) && !waiter) {
        uint64_t most = snapshot->spec->max_in_flight;
        return most > 0 && endpoint_in_flight(first) >= most;
    }
    const struct pool_member *member = pool_snapshot_find(snapshot, &first->address);
    return member && pool_is_member_full(snapshot, (uint32_t)(member - snapshot->members), waiter,
                                         clock_now_ns());
}

/* Without the lock, where that can be done. */
static enum status choose_endpoints(struct trial *trial, struct str model, struct error *err) {
    struct pool_reader *reader = trial->reader;
    const struct pool_request *request = trial->request;
    const struct profile *profile = pool_active_profile(reader);
    struct pool_shortlist *best = &trial->best;
    trial->capacity_epoch =
        atomic_load_explicit(&reader->pool->capacity_epoch, memory_order_relaxed);
    trial->chosen = profile || request->subset || request->selection;
    best->profile = profile;
    best->n = 0;
    best->most = 1 + request->n_fallbacks;
    best->candidates = NULL;
    best->by_profile = false;
    best->n_filtered = 0;
    best->full = false;
    best->check_full = trial->out->sheddable || reader->snapshot->spec->flow_control.on;
    if (!trial->chosen) {
        return ST_OK;
    }
    if (profile) {
        return pool_choose_by_profile(reader, profile, request, model, best, err);
    }
    enum status st =
        pool_choose_from_subsets(reader, request->subset, request->selection, best, err);
    if (st == ST_OK && best->check_full && best->n > 0) { /* the first has the fewest */
        best->full = is_first_full(trial, request->waiter);
    }
    return st;
}

/* What a try came to. */
enum attempt { ATTEMPT_AGAIN, ATTEMPT_PICKED, ATTEMPT_NONE, ATTEMPT_SATURATED };

/* Under the lock. Was what was chosen chosen of what there is now? */
static bool is_choice_current(const struct trial *trial) {
    const struct pool_shortlist *best = &trial->best;
    uint64_t capacity_epoch =
        atomic_load_explicit(&trial->reader->pool->capacity_epoch, memory_order_relaxed);
    if (!endpoint_is_eligible(best->endpoints[0])) {
        return false;
    }
    if (!trial->chosen || !trial->reader->snapshot->spec->flow_control.on) {
        return true;
    }
    return best->full ? capacity_epoch == trial->capacity_epoch : !is_first_full(trial, NULL);
}

/* Others wait already that may go wherever this one may. */
static bool has_waiters_ahead(const struct trial *trial) {
    const struct pool_waiter *waiter = trial->request->waiter;
    return trial->reader->snapshot->spec->flow_control.on && !(waiter && waiter->notified) &&
           atomic_load_explicit(&trial->reader->pool->n_unrestricted, memory_order_relaxed) > 0;
}

/* Under the lock. What is not chosen yet is of the whole pool. */
static enum attempt take_endpoint(struct trial *trial) {
    struct pool *pool = trial->reader->pool;
    struct pool_shortlist *best = &trial->best;
    if (!trial->chosen) {
        choose_from_ranking(trial->reader, best);
        best->full = best->n > 0 && best->check_full && is_first_full(trial, NULL);
    }
    if (best->n == 0) {
        return ATTEMPT_NONE;
    }
    if (!is_choice_current(trial)) {
        return ATTEMPT_AGAIN;
    }
    if ((best->full || has_waiters_ahead(trial)) && (trial->out->sheddable || can_wait(trial))) {
        return ATTEMPT_SATURATED;
    }
    struct endpoint *picked = best->endpoints[0];
    best->avoided = endpoint_is_avoided(picked);
    pool_prompt_add_in_flight(trial->reader, trial->request, best->profile, picked);
    endpoint_add_request(pool, picked);
    atomic_store_explicit(&picked->n_picked, endpoint_n_picked(picked) + 1, memory_order_relaxed);
    return ATTEMPT_PICKED;
}

/* The place that was kept for a request which was called is given up in the moment of its pick. */
static enum attempt take_for_notified(struct trial *trial, struct pool_waiter *waiter,
                                      struct pool_notifications *notifications) {
    struct pool *pool = trial->reader->pool;
    struct endpoint *reserved = waiter->reserved;
    if (reserved) {
        endpoint_remove_request(pool, reserved);
    }
    enum attempt attempt = take_endpoint(trial);
    if (attempt == ATTEMPT_AGAIN) {
        if (reserved) {
            endpoint_add_request(pool, reserved);
        }
        return attempt;
    }
    waiter->reserved = NULL;
    bool there = attempt == ATTEMPT_PICKED && reserved == trial->best.endpoints[0];
    if (reserved && (attempt == ATTEMPT_SATURATED || there)) {
        pool_set_stalled(pool, reserved, !there);
    }
    if (attempt == ATTEMPT_SATURATED && can_wait(trial)) {
        return attempt;
    }
    pool_dequeue_locked(pool, waiter, attempt == ATTEMPT_PICKED ? FLOW_DISPATCHED : FLOW_REFUSED,
                        notifications);
    if (reserved && !there) {
        pool_notify_waiters(pool, reserved, notifications);
    }
    return attempt;
}

/* `*st`: of a request that could wait, whether it does. */
static enum attempt attempt(struct trial *trial, enum status *st, struct error *err) {
    struct pool *pool = trial->reader->pool;
    struct pool_waiter *waiter = trial->request->waiter;
    struct pool_notifications notifications = {NULL};
    enum attempt result = ATTEMPT_AGAIN;
    lock_acquire(&pool->lock);
    if (pool->snapshot == trial->reader->snapshot) {
        result = waiter && waiter->notified ? take_for_notified(trial, waiter, &notifications)
                                            : take_endpoint(trial);
    }
    if (result == ATTEMPT_SATURATED && can_wait(trial)) {
        *st = pool_enqueue(trial->reader, trial->request, trial->out->priority, err);
    }
    lock_release(&pool->lock);
    pool_send_notifications(&notifications);
    return result;
}

static enum status no_endpoint_error(struct pool_reader *reader, const struct pool_request *request,
                                     struct error *err) {
    struct pool_stats stats;
    pool_get_stats(reader->pool, &stats);
    if (!request->subset && !request->selection) {
        return error_set(err, ST_NO_ENDPOINT, "none of the pool's %u endpoints is ready",
                         stats.n_endpoints);
    }
    const struct subset *subset = request->subset ? request->subset : request->selection;
    if (subset->n + subset->n_unreadable == 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "the list of endpoints that the request may be sent to is empty; the pool "
                         "has %u, of which %u are ready",
                         stats.n_endpoints, stats.n_ready);
    }
    return error_set(err, ST_NO_ENDPOINT,
                     "of the %zu endpoints that the request may be sent to (%zu of them cannot be "
                     "read) none is in the pool and ready; the pool has %u, of which %u are ready",
                     subset->n + subset->n_unreadable, subset->n_unreadable, stats.n_endpoints,
                     stats.n_ready);
}

static enum status saturated_error(const struct pool_spec *spec, struct error *err) {
    if (pool_limits_loads(spec) || spec->flow_control.on) {
        return error_set(err, ST_SATURATED,
                         "every endpoint is full (saturation in the picker's configuration), and "
                         "this request is sheddable");
    }
    return error_set(err, ST_SATURATED,
                     "every endpoint has %llu requests in flight or more "
                     "(max_in_flight in the picker's configuration), and this request is "
                     "sheddable",
                     (unsigned long long)spec->max_in_flight);
}

static enum status filtered_error(uint32_t n, struct error *err) {
    return error_set(err, ST_NO_ENDPOINT,
                     "the filters of the picker's profile leave none of the %u endpoints that are "
                     "ready and may take the request",
                     n);
}

static enum status finish_pick(struct trial *trial, enum attempt attempt, struct error *err) {
    const struct pool_shortlist *best = &trial->best;
    struct pool_pick *out = trial->out;
    if (attempt == ATTEMPT_NONE) {
        return best->n_filtered > 0 ? filtered_error(best->n_filtered, err)
                                    : no_endpoint_error(trial->reader, trial->request, err);
    }
    if (attempt == ATTEMPT_SATURATED) {
        return saturated_error(trial->reader->snapshot->spec, err);
    }
    for (size_t i = 0; i < best->n; i++) {
        out->endpoints[i] = best->endpoints[i];
    }
    out->n_endpoints = best->n;
    out->pool = trial->reader->snapshot->spec->name;
    out->picked_by = best->avoided      ? POOL_BY_LAST_RESORT
                     : best->by_profile ? POOL_BY_PROFILE
                                        : POOL_BY_LEAST_REQUESTS;
    out->ticket.endpoint = best->endpoints[0];
    pool_prompt_record(trial->reader, trial->request, best->profile, &out->ticket);
    return ST_OK;
}

enum status pool_pick(struct pool_reader *reader, const struct pool_request *request,
                      struct pool_pick *out, struct error *err) {
    struct trial trial;
    enum attempt result = ATTEMPT_AGAIN;
    enum status st = ST_OK;
    assert(request->n_fallbacks <= PROTOCOL_MAX_FALLBACKS);
    trial.reader = reader;
    trial.request = request;
    trial.out = out;
    while (st == ST_OK && result == ATTEMPT_AGAIN) {
        pool_reader_refresh(reader);
        expire_refusals(reader->pool);
        st = pool_resolve(reader, request, out, err);
        if (st == ST_OK) {
            st = choose_endpoints(&trial, out->target.ptr ? out->target : request->model, err);
        }
        if (st == ST_OK) {
            result = attempt(&trial, &st, err);
        }
    }
    if (result == ATTEMPT_SATURATED && can_wait(&trial)) {
        return st;
    }
    if (st != ST_OK && request->waiter && request->waiter->notified) {
        pool_dequeue(reader->pool, request->waiter, FLOW_REFUSED);
    }
    return st == ST_OK ? finish_pick(&trial, result, err) : st;
}

/* ---- a look without a pick ------------------------------------------------------------------- */

enum status pool_check_picked(struct pool_reader *reader, const struct pool_request *request,
                              const struct pool_ticket *ticket, struct pool_pick *out,
                              struct error *err) {
    const struct pool_spec *spec = pool_reader_refresh(reader)->spec;
    enum status st = pool_resolve(reader, request, out, err);
    uint64_t n = ticket->endpoint ? endpoint_in_flight(ticket->endpoint) : 0;
    bool saturated = spec->max_in_flight > 0 && n > spec->max_in_flight; /* n: this one, too */
    return st == ST_OK && out->sheddable && saturated ? saturated_error(spec, err) : st;
}
