/* How many requests an endpoint is trusted with after it has failed.
 *
 * An avoided endpoint (enum endpoint_avoidance) gets requests only where no better one is left. It
 * comes back by proof: one request at a time is sent there as a trial, and each answer makes its
 * window larger by one, so that it doubles in each round trip (slow start), until the window is no
 * limit any more. An answer to a request that it got as the last choice is a proof as well.
 *
 * Trials are soon, after TRIAL_NS, but cost requests that may fail: while others serve, each takes
 * TRIAL_PICKS picks of the pool that went elsewhere. At the latest the endpoint is tried when its
 * avoidance has ended (refused_for, base_ejection_time), and at once where requests wait, or where
 * a health check of an ejected endpoint has succeeded (pick/pool/outlier.c). A trial
 * that has no answer after TRIAL_NS is followed by another, by the same rules: an endpoint that
 * hung may answer new requests long before those that it got meanwhile time out.
 *
 * An endpoint that sheds load is full: its window becomes one less than what it had in flight.
 * Windows that every endpoint has used up make no difference: picks compare the others' as well.
 *
 * A request that fails fast leaves a debt: it counts as in flight until each other endpoint has
 * answered one on average, so that an endpoint that fails at once gets no more than its share. */
#include <assert.h>

#include "core/event/clock.h"
#include "pick/pool/state.h"

static const uint64_t TRIAL_NS = 1000000000, TRIAL_RETRY_NS = 100000000;
/* A server that sheds its trial as well is tried after so long in any case. */
static const uint64_t SHEDDING_NS = 30000000000;
/* Trials are at most 1 of so many picks. */
enum { TRIAL_PICKS = 64 };

static void store_u32(_Atomic uint32_t *cell, uint32_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

/* Requests in flight for an endpoint, on average. */
static uint64_t mean_in_flight(const struct pool *pool) {
    return pool->ranking.n > 0 ? pool->n_in_flight / pool->ranking.n : 0;
}

/* ---- debts ----------------------------------------------------------------------------------- */

static void set_debt(struct pool *pool, struct endpoint *endpoint, uint32_t debt) {
    if (debt == endpoint_debt(endpoint)) {
        return;
    }
    store_u32(&endpoint->debt, debt);
    if ((debt > 0) != endpoint->is_indebted) {
        endpoint->is_indebted = debt > 0;
        if (debt > 0) {
            TAILQ_INSERT_TAIL(&pool->indebted, endpoint, indebted_link);
        } else {
            TAILQ_REMOVE(&pool->indebted, endpoint, indebted_link);
        }
    }
    endpoint_update_rank(pool, endpoint);
}

/* The debt of each of several failures in a row is twice that of the last, up to 2^5. */
enum { MAX_IN_ROW = 6 };

/* It counts as at least as loaded as the others, and more with each failure, within a bound: an
 * endpoint that is added later has no debt. Where most endpoints fail, so that none is ejected, or
 * no more than max_ejection_percent, those that only fail get a small part of their share. `once`:
 * the failures before do not add to it. */
void endpoint_add_debt(struct pool *pool, struct endpoint *endpoint, bool once) {
    uint64_t mean = mean_in_flight(pool), most = (once ? 4 : 16) * (mean + 2);
    uint32_t in_flight = endpoint_in_flight(endpoint), debt = endpoint_debt(endpoint);
    lock_assert_held(&pool->lock);
    if (!endpoint->in_pool) {
        return;
    }
    uint64_t wanted = in_flight + debt < mean ? mean - in_flight : debt;
    uint64_t added = 1;
    if (!once) {
        endpoint->n_bad_in_row += endpoint->n_bad_in_row < MAX_IN_ROW;
        added = UINT64_C(1) << (endpoint->n_bad_in_row - 1);
    }
    wanted = wanted + added < most ? wanted + added : most;
    if (wanted > debt) {
        endpoint->debt_of_rows += (uint32_t)added - 1;
        set_debt(pool, endpoint, (uint32_t)wanted);
    }
}

void endpoint_end_row(struct pool *pool, struct endpoint *endpoint) {
    uint32_t debt = endpoint_debt(endpoint), of_rows = endpoint->debt_of_rows;
    lock_assert_held(&pool->lock);
    endpoint->n_bad_in_row = 0;
    endpoint->debt_of_rows = 0;
    set_debt(pool, endpoint, debt > of_rows ? debt - of_rows : 0);
}

void pool_pay_debts(struct pool *pool) {
    lock_assert_held(&pool->lock);
    if (TAILQ_EMPTY(&pool->indebted) || ++pool->n_answers < pool->ranking.n) {
        return;
    }
    pool->n_answers = 0;
    struct endpoint *next, *endpoint = TAILQ_FIRST(&pool->indebted);
    for (; endpoint; endpoint = next) {
        next = TAILQ_NEXT(endpoint, indebted_link);
        set_debt(pool, endpoint, endpoint_debt(endpoint) - 1);
    }
}

void endpoint_forget_debt(struct pool *pool, struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    endpoint->debt_of_rows = 0;
    set_debt(pool, endpoint, 0);
}

/* ---- trials ---------------------------------------------------------------------------------- */

static uint64_t next_trial_ns(const struct endpoint_list *list) {
    const struct endpoint *first = TAILQ_FIRST(list);
    return first ? first->trial_ns : UINT64_MAX;
}

static void update_avoidance_expiry(struct pool *pool) {
    uint64_t avoided_ns = next_trial_ns(&pool->avoided), tried_ns = next_trial_ns(&pool->tried);
    atomic_store_explicit(&pool->next_avoidance_expiry_ns,
                          avoided_ns < tried_ns ? avoided_ns : tried_ns, memory_order_relaxed);
}

/* Both lists are sorted by the times of the next trials. */
static void insert_by_trial(struct pool *pool, struct endpoint_list *list,
                            struct endpoint *endpoint) {
    struct endpoint *before = TAILQ_LAST(list, endpoint_list);
    while (before && before->trial_ns > endpoint->trial_ns) {
        before = TAILQ_PREV(before, endpoint_list, avoided_link);
    }
    if (before) {
        TAILQ_INSERT_AFTER(list, before, endpoint, avoided_link);
    } else {
        TAILQ_INSERT_HEAD(list, endpoint, avoided_link);
    }
    update_avoidance_expiry(pool);
}

static void remove_by_trial(struct pool *pool, struct endpoint_list *list,
                            struct endpoint *endpoint) {
    TAILQ_REMOVE(list, endpoint, avoided_link);
    update_avoidance_expiry(pool);
}

/* Its trial was answered, or failed. */
static void end_trial(struct pool *pool, struct endpoint *endpoint) {
    if (endpoint->is_tried) {
        endpoint->is_tried = false;
        pool->n_tried--;
        remove_by_trial(pool, &pool->tried, endpoint);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

bool endpoint_is_window_full(const struct endpoint *endpoint) {
    const struct endpoint_window *window = &endpoint->window;
    uint32_t size = endpoint_window_size(endpoint);
    uint64_t exempt = (uint64_t)window->n_older + window->n_reserved;
    return size > 0 && endpoint_in_flight(endpoint) >= size + exempt;
}

void endpoint_count_older(struct endpoint *endpoint, uint64_t number) {
    if (endpoint_window_size(endpoint) > 0 && number <= endpoint->n_picks_before) {
        endpoint->window.n_older++;
    }
}

void endpoint_forget_older(struct endpoint *endpoint, uint64_t number) {
    if (endpoint->window.n_older > 0 && number <= endpoint->n_picks_before) {
        endpoint->window.n_older--;
    }
}

/* Answers are looked at from now on. */
static void watch_answers(struct pool *pool) {
    atomic_store_explicit(&pool->is_troubled, true, memory_order_relaxed);
}

static void set_window(struct pool *pool, struct endpoint *endpoint, uint32_t size,
                       uint32_t threshold) {
    uint32_t before = endpoint_window_size(endpoint);
    if (size != 1) {
        end_trial(pool, endpoint);
    }
    store_u32(&endpoint->window.size, size);
    endpoint->window.threshold = threshold;
    endpoint->window.n_grown = 0;
    if (size > 0) {
        watch_answers(pool);
    }
    pool->n_windows = pool->n_windows - (before > 0) + (size > 0);
    endpoint_update_rank(pool, endpoint);
}

/* One request at a time, until one is answered. Those that are in flight do not count. */
static void begin_trial(struct pool *pool, struct endpoint *endpoint, uint64_t now_ns) {
    endpoint->window.n_older = endpoint_in_flight(endpoint) - endpoint->window.n_reserved;
    endpoint->n_picks_before = pool->n_picks;
    endpoint_forget_debt(pool, endpoint);
    set_window(pool, endpoint, 1, endpoint->window.threshold);
    end_trial(pool, endpoint);
    endpoint->is_tried = true;
    pool->n_tried++;
    endpoint->trial_ns = now_ns + TRIAL_NS;
    insert_by_trial(pool, &pool->tried, endpoint);
}

void endpoint_grow_window(struct pool *pool, struct endpoint *endpoint) {
    struct endpoint_window *window = &endpoint->window;
    uint32_t size = endpoint_window_size(endpoint);
    lock_assert_held(&pool->lock);
    if (size == 0) {
        return;
    }
    if (size > 2 * (mean_in_flight(pool) + 1)) {
        endpoint_open_window(pool, endpoint);
        return;
    }
    bool is_slow_start = window->threshold == 0 || size < window->threshold;
    if (is_slow_start || ++window->n_grown >= size) {
        set_window(pool, endpoint, size + 1, window->threshold);
    }
}

void endpoint_open_window(struct pool *pool, struct endpoint *endpoint) {
    endpoint->window.n_older = 0;
    set_window(pool, endpoint, 0, 0);
}

/* ---- avoided endpoints ----------------------------------------------------------------------- */

static void set_avoidance(struct pool *pool, struct endpoint *endpoint,
                          enum endpoint_avoidance avoidance) {
    pool->n_avoided[endpoint_avoidance(endpoint)]--; /* that of ENDPOINT_NOT_AVOIDED has no
                                                        meaning */
    pool->n_avoided[avoidance]++;
    atomic_store_explicit(&endpoint->avoidance, (uint8_t)avoidance, memory_order_relaxed);
}

/* `on_trial`: it is tried next, and an error avoids it again. */
static void end_avoidance(struct pool *pool, struct endpoint *endpoint, bool on_trial) {
    if (endpoint_avoidance(endpoint) == ENDPOINT_EJECTED) {
        endpoint_end_ejection(endpoint, on_trial);
    }
    remove_by_trial(pool, &pool->avoided, endpoint);
    set_avoidance(pool, endpoint, ENDPOINT_NOT_AVOIDED);
}

/* When it may be tried, and when it is in any case. */
struct avoidance_times {
    uint64_t from_ns, until_ns;
};

static void set_avoided(struct pool *pool, struct endpoint *endpoint,
                        enum endpoint_avoidance avoidance, uint64_t now_ns,
                        struct avoidance_times times) {
    lock_assert_held(&pool->lock);
    if (endpoint_avoidance(endpoint) != ENDPOINT_NOT_AVOIDED) {
        end_avoidance(pool, endpoint, false);
    }
    if (endpoint->is_tried) { /* the next trial is due as if this one had no answer */
        end_trial(pool, endpoint);
    } else {
        endpoint->trial_ns = now_ns + TRIAL_NS;
        endpoint->n_picks_before = pool->n_picks;
    }
    set_avoidance(pool, endpoint, avoidance);
    endpoint->avoided_until_ns = times.until_ns;
    endpoint->trial_ns = times.from_ns > endpoint->trial_ns ? times.from_ns : endpoint->trial_ns;
    endpoint->trial_ns = times.until_ns < endpoint->trial_ns ? times.until_ns : endpoint->trial_ns;
    insert_by_trial(pool, &pool->avoided, endpoint);
    watch_answers(pool);
    endpoint_open_window(pool, endpoint);
}

void endpoint_set_avoided(struct pool *pool, struct endpoint *endpoint,
                          enum endpoint_avoidance avoidance, uint64_t now_ns, uint64_t until_ns) {
    set_avoided(pool, endpoint, avoidance, now_ns, (struct avoidance_times){0, until_ns});
}

/* Of those in flight that the window counts, the request that was shed included. */
void endpoint_shrink_window(struct pool *pool, struct endpoint *endpoint, uint64_t now_ns,
                            uint64_t retry_after_ns) {
    const struct endpoint_window *window = &endpoint->window;
    uint32_t in_flight = endpoint_in_flight(endpoint) - window->n_reserved - window->n_older;
    uint32_t size = endpoint_window_size(endpoint);
    lock_assert_held(&pool->lock);
    if (!endpoint_is_ready(endpoint) || endpoint_avoidance(endpoint) != ENDPOINT_NOT_AVOIDED) {
        return;
    }
    size = size > 0 && size < in_flight ? size : in_flight;
    if (size > 1) {
        set_window(pool, endpoint, size - 1, size - 1);
    } else {
        uint64_t wait_ns = retry_after_ns > TRIAL_NS ? retry_after_ns : TRIAL_NS;
        bool again = endpoint->is_tried;
        uint64_t most_ns = again && wait_ns < SHEDDING_NS ? SHEDDING_NS : wait_ns;
        set_avoided(pool, endpoint, ENDPOINT_SHEDDING, now_ns,
                    (struct avoidance_times){now_ns + wait_ns, now_ns + most_ns});
    }
}

void endpoint_try_avoided(struct pool *pool, struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (endpoint_avoidance(endpoint) != ENDPOINT_NOT_AVOIDED) {
        end_avoidance(pool, endpoint, true);
        begin_trial(pool, endpoint, clock_now_ns());
    }
}

void endpoint_clear_avoided(struct pool *pool, struct endpoint *endpoint) {
    lock_assert_held(&pool->lock);
    if (endpoint_avoidance(endpoint) != ENDPOINT_NOT_AVOIDED) {
        end_avoidance(pool, endpoint, false);
    }
    endpoint_open_window(pool, endpoint);
}

/* While others serve, trials are at most a small share of the pool's picks. */
static bool is_trial_affordable(const struct pool *pool, const struct endpoint *endpoint) {
    uint64_t n = (uint64_t)pool->n_tried + pool->n_avoided[ENDPOINT_CONNECTION_REFUSED] +
                 pool->n_avoided[ENDPOINT_EJECTED] + pool->n_avoided[ENDPOINT_SHEDDING];
    return pool->flow.n_queued > 0 || pool->n_picks - endpoint->n_picks_before >= TRIAL_PICKS * n;
}

void endpoint_try_due(struct pool *pool, uint64_t now_ns) {
    struct endpoint *first;
    lock_assert_held(&pool->lock);
    while ((first = TAILQ_FIRST(&pool->avoided)) && first->trial_ns <= now_ns) {
        if (first->avoided_until_ns <= now_ns || endpoint_is_proved(first) ||
            is_trial_affordable(pool, first)) {
            uint64_t until_ns = first->avoided_until_ns;
            endpoint_try_avoided(pool, first);
            first->avoided_until_ns = until_ns <= now_ns ? 0 : until_ns;
        } else {
            uint64_t next_ns = now_ns + TRIAL_RETRY_NS;
            remove_by_trial(pool, &pool->avoided, first);
            first->trial_ns = first->avoided_until_ns < next_ns ? first->avoided_until_ns : next_ns;
            insert_by_trial(pool, &pool->avoided, first);
        }
    }
    while ((first = TAILQ_FIRST(&pool->tried)) && first->trial_ns <= now_ns) {
        if (is_trial_affordable(pool, first)) {
            begin_trial(pool, first, now_ns);
        } else {
            remove_by_trial(pool, &pool->tried, first);
            first->trial_ns = now_ns + TRIAL_RETRY_NS;
            insert_by_trial(pool, &pool->tried, first);
        }
    }
}

void endpoint_try_proved(struct pool *pool, struct endpoint *endpoint, uint64_t now_ns) {
    lock_assert_held(&pool->lock);
    if (endpoint_is_proved(endpoint)) { /* however often its trial was put off */
        uint64_t due_ns = endpoint->outliers.ejected_ns + TRIAL_NS;
        remove_by_trial(pool, &pool->avoided, endpoint);
        endpoint->trial_ns = due_ns < endpoint->trial_ns ? due_ns : endpoint->trial_ns;
        insert_by_trial(pool, &pool->avoided, endpoint);
        endpoint_try_due(pool, now_ns);
    }
}
