/* Internal to pick/pool: struct pool, struct pool_reader and the functions that its files share.
 * Other modules use pool.h.
 *
 * Two locks: `updating` serializes updates; `lock` guards the state that picks change and is held
 * for some dozen instructions. `lock` is taken while holding `updating`, never the other way
 * round. */
#ifndef SLUICE_PICK_POOL_STATE_H
#define SLUICE_PICK_POOL_STATE_H

#include "core/event/lock.h"
#include "pick/pool/flow/saturation.h"
#include "pick/pool/flow/wait.h"
#include "pick/pool/kinds.h"
#include "pick/pool/pool.h"
#include "pick/pool/profile/plugin_times.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/profile/session_id.h"
#include "pick/pool/records.h"
#include "pick/pool/view.h"

/* Of recent requests: how they ended. */
struct pool_outcomes {
    struct outcome_table all;
    struct request_kinds kinds;
};

struct pool {
    _Atomic uint32_t n_refs;
    struct str name;
    char *name_bytes; /* NULL: no name */
    struct lock updating;
    /* All endpoints, sorted by address: those wanted, those in a reader's older snapshot, and those
     * with requests in flight. */
    struct endpoint **known;
    size_t n_known;

    struct lock lock;
    struct pool_snapshot *snapshot;
    _Atomic uint64_t generation; /* of the snapshot; readers compare it with their own */
    struct ranking ranking;      /* of the members that can be picked, by rank */
    uint64_t n_in_flight;
    /* The avoided endpoints, sorted by when they are tried next. */
    TAILQ_HEAD(endpoint_list, endpoint) avoided;
    uint32_t n_avoided[N_ENDPOINT_AVOIDANCES]; /* by reason */
    struct endpoint_list tried;                /* on trial without an answer yet, sorted likewise */
    uint32_t n_tried;                          /* how many they are */
    struct endpoint_list indebted;             /* endpoints with debts */
    uint32_t n_answers;                        /* since the last payment of debts */
    uint32_t n_windows;                        /* endpoints with a window */
    uint64_t n_picks;                          /* total */
    struct pool_outcomes *outcomes;            /* NULL: no request failed yet */
    _Atomic uint32_t n_avoided_kinds;          /* pairs of endpoint and kind of requests */
    uint64_t troubled_ns;                      /* the last failure */
    _Atomic bool has_results;                  /* the proxy tells how requests end */
    _Atomic bool is_unchecked_noted;           /* pool_note_unchecked_model was called */
    _Atomic bool has_requested_bodies;         /* pool_note_requested_body was called */
    _Atomic bool is_troubled;     /* a request failed lately: good answers are looked at as well */
    _Atomic uint32_t n_unchecked; /* members not checked yet (endpoint->unchecked) */
    /* When the first endpoint is tried next (UINT64_MAX: none); picks read it without the lock. */
    _Atomic uint64_t next_avoidance_expiry_ns;
    struct prefix_table *prefix_table;                  /* NULL: none */
    struct prefix_hits prefix_hits[PREFIX_MAX_INDEXES]; /* of destinations, under the lock */
    struct media_counts media[PREFIX_MAX_INDEXES];      /* likewise */
    metric_cell media_ratios[PREFIX_MAX_INDEXES][PREFIX_HIT_RATIO_CELLS]; /* likewise: of a
                                                                             request's items, the
                                                                             part that an endpoint
                                                                             was sent, of each */
    struct plugin_times plugin_times;
    struct lock burst_lock;    /* of windows (pick/pool/prefix/burst.h) */
    struct burst_batch *burst; /* the open window; NULL: none */
    _Atomic uint32_t n_unseen; /* requests with prompts since the last one of which the proxy showed
                                  the response; see prompt.c */
    _Atomic uint32_t last_cold_request;    /* the newest request of which no endpoint had the
                                              prefix */
    _Atomic uint64_t loads_valid_until_ns; /* until when some endpoint's load report is valid */

    struct pool_saturation saturation;
    struct pool_eviction eviction;
    struct flow flow;
    uint64_t readiness_since_ns;     /* when the first endpoint became ready, or the last one was
                                    lost */
    _Atomic uint64_t n_unrestricted; /* queued requests without a subset */
    _Atomic uint64_t ticked_ns;      /* of the last pool_tick */
    /* Changes when a waiter may have come to be able to use an endpoint; those of few endpoints
     * reset their unwanted_epoch instead. */
    uint64_t queue_epoch;
    _Atomic uint64_t n_cycles;       /* of dispatching, for soft usage limits */
    uint64_t n_searches;             /* of the queue, for a waiter of an endpoint */
    _Atomic uint64_t capacity_epoch; /* counts the events that may have added capacity */
};

static inline bool pool_has_results(const struct pool *pool) {
    return atomic_load_explicit(&pool->has_results, memory_order_relaxed);
}

struct pool_reader {
    /* Of the request being picked for, by the profile's producers. */
    struct prefix_matches prefixes[PREFIX_MAX_INDEXES];
    struct media_matches media[PREFIX_MAX_INDEXES];
    struct session_choice sessions[SESSION_TABLES_MAX]; /* with tables of sessions */
    struct pool *pool;
    uint32_t n_refs;    /* of its thread */
    uint32_t n_waiting; /* requests of its thread that wait for the pool (struct pool_waited) */
    LIST_ENTRY(pool_reader) waited_link; /* with n_waiting > 0 */
    struct pool_snapshot *snapshot;
    struct prng prng;
    uint32_t n_unmeasured; /* runs of profiles until the next one whose plugins are timed */
    bool clock_runs;       /* this run's are */
    struct plugin_clock clock;
    /* By member, for subsets: the mark of the subset that it was last seen in. */
    uint32_t *subset_marks;
    uint32_t n_subset_marks;
    uint32_t subset_mark; /* the newest mark */
    /* For profiles. */
    struct pool_view view;
};

/* ---- pool.c: all under pool->lock ------------------------------------------------------------ */

/* Publishes to the readers' views that the endpoint's load, requests or rank changed. */
void endpoint_record_change(struct pool *pool, struct endpoint *endpoint);
/* Adds to the tokens in flight; `n` may be negative. */
void endpoint_add_tokens(struct pool *pool, struct endpoint *endpoint, int64_t n);
void endpoint_add_request(struct pool *pool, struct endpoint *endpoint);
void endpoint_remove_request(struct pool *pool, struct endpoint *endpoint);
/* What its rank depends on has changed. */
void endpoint_update_rank(struct pool *pool, struct endpoint *endpoint);

/* ---- window.c: all under pool->lock ---------------------------------------------------------- */

/* Avoids it until then at the latest, instead of what was set before. */
void endpoint_set_avoided(struct pool *pool, struct endpoint *endpoint,
                          enum endpoint_avoidance avoidance, uint64_t now_ns, uint64_t until_ns);
/* The endpoint, if it is avoided, is tried from now on: with one request at a time. */
void endpoint_try_avoided(struct pool *pool, struct endpoint *endpoint);
/* It is neither avoided nor limited any more. */
void endpoint_clear_avoided(struct pool *pool, struct endpoint *endpoint);
/* Begins the trials that are due. */
void endpoint_try_due(struct pool *pool, uint64_t now_ns);
/* A health check of it succeeded: it is tried if that ends its ejection. */
void endpoint_try_proved(struct pool *pool, struct endpoint *endpoint, uint64_t now_ns);
/* It has as many requests in flight as its window permits. */
bool endpoint_is_window_full(const struct endpoint *endpoint);
/* A request with this number of the pool's picks is about to be counted there, without a pick. */
void endpoint_count_older(struct endpoint *endpoint, uint64_t number);
/* One that is counted there is about to end. */
void endpoint_forget_older(struct endpoint *endpoint, uint64_t number);
/* A request was answered. */
void endpoint_grow_window(struct pool *pool, struct endpoint *endpoint);
/* Any number of requests may be in flight. */
void endpoint_open_window(struct pool *pool, struct endpoint *endpoint);
/* A request, still in flight, was shed. `retry_after_ns`: as the server said; 0: it did not. */
void endpoint_shrink_window(struct pool *pool, struct endpoint *endpoint, uint64_t now_ns,
                            uint64_t retry_after_ns);
/* A request, still in flight, failed; `once`: it counts alone, however many did before. */
void endpoint_add_debt(struct pool *pool, struct endpoint *endpoint, bool once);
/* It answered a request: the failures before count once each. */
void endpoint_end_row(struct pool *pool, struct endpoint *endpoint);
/* A request was answered, by any endpoint. */
void pool_pay_debts(struct pool *pool);
void endpoint_forget_debt(struct pool *pool, struct endpoint *endpoint);

/* ---- outlier.c: under pool->lock ------------------------------------------------------------- */

/* Its ejection has ended: it is on trial, or ready for another reason. */
void endpoint_end_ejection(struct endpoint *endpoint, bool on_trial);
/* A health check that began then has succeeded. */
void endpoint_count_check(struct endpoint *endpoint, uint64_t begun_ns);
/* Its trial and the checks that were wrong have no consequences: it is ready for another reason. */
void endpoint_forget_trials(struct endpoint *endpoint);
/* It is ejected, and so many health checks succeeded since that this ends. */
bool endpoint_is_proved(const struct endpoint *endpoint);
/* Another server may have the address from now on. */
void endpoint_forget_outliers(struct pool *pool, struct endpoint *endpoint);
/* It is not avoided for any kind of requests any more. */
void endpoint_readmit_kinds(struct pool *pool, const struct endpoint *endpoint);
/* The endpoints that requests of the kind (0: unknown) should not be sent to. Takes the lock.
 * Returns: their number. */
size_t pool_list_unfit(struct pool *pool, uint64_t kind,
                       const struct endpoint *out[ENDPOINTS_OF_KIND]);
/* A request of the kind was sent to the endpoint. */
void pool_count_kind(struct pool *pool, uint64_t kind, const struct endpoint *endpoint);

/* ---- pick.c ---------------------------------------------------------------------------------- */

/* The profile that the pick runs over all candidates; NULL: the endpoint with the fewest requests
 * in flight is picked. */
const struct profile *pool_active_profile(const struct pool_reader *reader);
/* The endpoints that the request may be sent to: the best of the view (view.h), with worse ones as
 * far as there are none beyond the first `beyond` of it. `model`: as the endpoint will see it.
 * Returns: ST_NO_MEMORY. */
enum status pool_collect_candidates(struct pool_reader *reader, const struct pool_request *request,
                                    struct str model, uint32_t beyond, struct candidate_set *out,
                                    struct error *err) SLUICE_MUST_USE;

/* ---- pick/pool/flow/wait.c: all but pool_send_notifications under pool->lock ----------------- */

/* Workers to wake after the lock is released. */
struct pool_notifications {
    struct pool_wakeup *first;
};

/* An endpoint, or any, may have capacity: notifies as many waiters as the capacity allows. */
void pool_notify_waiters(struct pool *pool, struct endpoint *endpoint,
                         struct pool_notifications *notifications);
/* The same for all endpoints, up to a number of waiters. Returns: there is more to do, after the
 * lock was released. */
bool pool_notify_all_waiters(struct pool *pool, struct pool_notifications *notifications);
/* Whether this endpoint is full, or its window is used up: then new capacity must be announced to
 * waiters. Where it had capacity before, no waiter waits for it, and the queues need not be
 * searched. */
bool pool_lacks_capacity(struct pool *pool, const struct endpoint *endpoint);
/* The same where waiters exist: mostly there are none. */
static inline bool pool_is_capacity_awaited(struct pool *pool, const struct endpoint *endpoint) {
    return pool->flow.n_queued > 0 && pool_lacks_capacity(pool, endpoint);
}
/* The endpoint may have capacity now; `awaited`: pool_is_capacity_awaited before the change. */
void pool_notify_if_awaited(struct pool *pool, struct endpoint *endpoint, bool awaited,
                            struct pool_notifications *notifications);
/* A slot of the waiter's reserved endpoint, which counts as a request in flight there, and where
 * tokens are what counts with its tokens. */
void pool_reserve_slot(struct pool *pool, struct pool_waiter *waiter);
void pool_release_slot(struct pool *pool, struct pool_waiter *waiter);
/* The waiter notified for the endpoint was picked for it (false), or waits on (true). */
void pool_set_stalled(struct pool *pool, struct endpoint *endpoint, bool stalled);
/* A request at the endpoint, with this number of the pool's picks, ended: lowers the count and
 * notifies. */
void pool_release_capacity(struct pool *pool, struct endpoint *endpoint, uint64_t number,
                           struct pool_notifications *notifications);
/* The window of a held request has ended: it is in its wakeup's list, until it is popped or
 * forgotten. Not under pool->lock. */
void pool_wakeup_release_held(struct burst_member *member,
                              struct pool_notifications *notifications);
void pool_wakeup_forget_held(struct burst_member *member);
/* The pool was updated: under the lock, then the rest without it. */
void pool_notify_after_update(struct pool *pool, struct pool_notifications *notifications);
void pool_settle_waiters(struct pool *pool);
/* Resolves the waiter's subset for the snapshot, if it has one and was not resolved. Thread: the
 * waiter's while it is not queued, otherwise under pool->lock. */
void pool_waiter_resolve(const struct pool_snapshot *snapshot, struct pool_waiter *waiter);
/* Frees what was resolved, of a waiter that is not queued. */
void pool_waiter_forget(struct pool_waiter *waiter);
void pool_send_notifications(struct pool_notifications *notifications);
/* The waiter is in its wakeup's list from now on, and no longer. */
void pool_wakeup_append(struct pool_waiter *waiter, struct pool_notifications *notifications);
void pool_wakeup_forget(struct pool_waiter *waiter);

/* Adds the request to the queue, perhaps in the place of others, or keeps its place. Returns:
 * ST_NO_MEMORY, ST_SATURATED. */
enum status pool_enqueue(struct pool_reader *reader, const struct pool_request *request,
                         int64_t priority, struct pool_notifications *notifications,
                         struct error *err) SLUICE_MUST_USE;
/* A request of the ticket's program is sent: with PROGRAMS_DEEPEST a turn. Takes the lock. */
void pool_begin_turn(struct pool *pool, struct pool_ticket *ticket);
/* Of a waiter whose place another request took. Returns: ST_SATURATED. */
enum status pool_displaced_error(struct error *err);
/* As pool_dequeue. */
void pool_dequeue_locked(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome,
                         struct pool_notifications *notifications);
/* How much of an endpoint's capacity requests of a priority may use (flow/usage_limit.h). */
struct pool_gate {
    double ceiling;
    uint64_t cycle; /* of dispatching */
};
/* `snapshot`: without ceilings the whole capacity is for all. */
static inline struct pool_gate pool_gate_of(const struct pool_snapshot *snapshot, int64_t priority,
                                            uint64_t cycle) {
    return (struct pool_gate){
        snapshot->ceilings ? usage_ceilings_find(snapshot->ceilings, snapshot->n_ceilings, priority)
                           : 1,
        cycle};
}
/* Whether the member is full, not counting a slot that is reserved for `waiter` (may be NULL). */
bool pool_is_member_full(const struct pool_snapshot *snapshot, uint32_t member,
                         const struct pool_waiter *waiter, struct pool_gate gate, uint64_t now_ns);
/* Whether no endpoint can be picked, and requests wait until one can be. */
bool pool_awaits_endpoint(const struct pool *pool);
/* Whether requests of this priority or a higher one are queued. */
bool pool_has_queued_from(const struct pool *pool, int64_t priority);

#endif
