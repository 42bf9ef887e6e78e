/* What the files of a pool share. For pool*.c only; everybody else uses pool.h.
 *
 * Two locks: `updating` lets one update run at a time; `lock` guards what picks change, is held for
 * some dozen instructions, and is taken within `updating`, never the other way round. */
#ifndef SLUICE_PICK_POOL_STATE_H
#define SLUICE_PICK_POOL_STATE_H

#include "core/event/lock.h"
#include "pick/pool/flow/wait.h"
#include "pick/pool/pool.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/view.h"

struct pool {
    _Atomic uint32_t n_refs;
    struct str name;
    char *name_bytes; /* NULL: it has none */
    struct lock updating;
    /* Every endpoint there is, sorted by address: wanted ones, those that a reader's snapshot still
     * has, and those with requests in flight. */
    struct endpoint **known;
    size_t n_known;

    struct lock lock;
    struct pool_snapshot *snapshot;
    _Atomic uint64_t generation; /* of the snapshot; a reader compares it with its own */
    struct ranking ranking;      /* of the endpoints that are wanted and ready, by their rank */
    uint64_t n_in_flight;
    /* Those that refused a connection, the first one first, and until when it counts: what a pick
     * looks at before it takes the lock. UINT64_MAX: there is none. */
    struct endpoint *refused_first, *refused_last;
    uint32_t n_refused;
    _Atomic uint32_t n_unchecked; /* of the snapshot's; see endpoint->unchecked */
    _Atomic uint64_t next_refusal_expiry_ns;
    struct prefix_table *prefix_table;     /* NULL: none */
    _Atomic uint32_t last_cold_request;    /* of the newest request of which nobody had the
                                              beginning */
    _Atomic uint64_t loads_valid_until_ns; /* until when something is known of some endpoint's
                                                  load */

    struct flow flow;
    _Atomic uint64_t n_unrestricted; /* that are queued and may go anywhere */
    _Atomic uint64_t ticked_ns;      /* the last pool_tick */
    _Atomic uint64_t capacity_epoch; /* how often there may have been room that was not there
                                          before */
};

struct pool_reader {
    struct prefix_matches prefix; /* of the request that is picked for */
    struct pool *pool;
    uint32_t n_refs; /* its thread's */
    struct pool_snapshot *snapshot;
    struct prng prng;
    /* For subsets: the number of the list that a member was last seen in. */
    uint32_t *subset_marks;
    uint32_t n_subset_marks;
    uint32_t subset_mark; /* the newest number */
    /* For profiles. */
    struct pool_view view;
};

/* ---- pool.c: all under pool->lock ------------------------------------------------------------ */

/* Publishes to the readers' views that the endpoint's load, requests or rank changed. */
void endpoint_record_change(struct pool *pool, const struct endpoint *endpoint);
/* Adds to the tokens in flight; `n` may be negative. */
void endpoint_add_tokens(struct pool *pool, struct endpoint *endpoint, int64_t n);
void endpoint_add_request(struct pool *pool, struct endpoint *endpoint);
void endpoint_remove_request(struct pool *pool, struct endpoint *endpoint);
/* Clears the refusals whose time has passed. */
void endpoint_clear_expired_refusals(struct pool *pool, uint64_t now_ns);

/* ---- pick.c ---------------------------------------------------------------------------------- */

/* The profile that the pick runs over all candidates; NULL: the endpoint with the fewest requests
 * in flight is picked. */
const struct profile *pool_active_profile(const struct pool_reader *reader);
/* The endpoints that the request may be sent to. `model`: as the endpoint will see it. Returns:
 * ST_NO_MEMORY. */
enum status pool_collect_candidates(struct pool_reader *reader, const struct pool_request *request,
                                    struct str model, struct candidate_set *out, struct error *err)
    __attribute__((warn_unused_result));

/* ---- pick/pool/flow/wait.c: all but pool_send_notifications under pool->lock ----------------- */

/* Bells that are to be rung once the lock is dropped. */
struct pool_notifications {
    struct pool_wakeup *first;
};

/* There may be room at one, or anywhere: as many as there is room for are called. */
void pool_notify_waiters(struct pool *pool, struct endpoint *endpoint,
                         struct pool_notifications *notifications);
void pool_notify_all_waiters(struct pool *pool, struct pool_notifications *notifications);
/* Something waits, and there is no room at this one: some would be news. Where there was room
 * before nobody has waited for it, and the queues needn't be searched. */
bool pool_is_capacity_awaited(struct pool *pool, const struct endpoint *endpoint);
/* There may be room now; `awaited`: as it was before. */
void pool_notify_if_awaited(struct pool *pool, struct endpoint *endpoint, bool awaited,
                            struct pool_notifications *notifications);
/* One that was called for the endpoint was picked for; or, `barren`, it waits on. */
void pool_set_stalled(struct pool *pool, struct endpoint *endpoint, bool stalled);
/* One request less at an endpoint, and what comes of that. */
void pool_release_capacity(struct pool *pool, struct endpoint *endpoint,
                           struct pool_notifications *notifications);
/* The pool's configuration is another one. */
void pool_notify_after_update(struct pool *pool, struct pool_notifications *notifications);
void pool_send_notifications(struct pool_notifications *notifications);

/* The request begins to wait, or has its place again. Returns: ST_NO_MEMORY, ST_SATURATED. */
enum status pool_enqueue(struct pool_reader *reader, const struct pool_request *request,
                         int64_t priority, struct error *err) __attribute__((warn_unused_result));
/* As pool_dequeue. */
void pool_dequeue_locked(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome,
                         struct pool_notifications *notifications);
/* Full, but for the place that is kept there for `waiter` (may be NULL). */
bool pool_is_member_full(const struct pool_snapshot *snapshot, uint32_t member,
                         const struct pool_waiter *waiter, uint64_t now_ns);

#endif
