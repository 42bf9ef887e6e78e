/* Queueing for a pool: a request waits where every endpoint that it may go to is full, by our
 * requests in flight, the requests waiting there, or its KV cache (`saturation` in the
 * configuration). flow.h has the order.
 *
 * When an endpoint has capacity again (a response ended, a new load report, it became ready) the
 * first waiter that may use it is notified: a slot at the endpoint is reserved for it, so that only
 * as many are notified as there is capacity, and its wakeup is signalled. The request then picks
 * again by the current state, and releases the reserved slot in the same step. If it finds no
 * capacity after all it is put back to its position in the queue.
 *
 * A request whose endpoints have all left the pool is notified too, and then refused, unless
 * requests wait for an endpoint (flow_control.no_endpoint_wait) and none is ready.
 *
 * New requests queue after unrestricted waiters (without a subset) of the same or a higher
 * priority. While all waiters have subsets, a request for which there is capacity is picked for at
 * once.
 *
 * Capacity can also appear with time (a load report expires, an endpoint is no longer avoided):
 * while requests wait, pool_tick is called regularly.
 *
 * With several profiles (pick/pool/profile/handler.h) a request waits only for endpoints that its
 * profile may choose by their labels, as if they were a subset.
 *
 * With one of upstream's detectors the pool is saturated as a whole (saturation.h): any waiter is
 * then notified for any endpoint, and reserves what it would use of the whole.
 *
 * A subset is resolved to a set of members once for each snapshot, and what is done under the lock
 * at a time is bounded: a tick that finds capacity for many waiters, and an update of the pool,
 * release the lock in between.
 *
 * A request that a full queue has no place for may take that of another (flow.h); the other one is
 * notified, and its next pick is refused.
 *
 * Back pressure: the queue is limited by requests and bytes (flow_control); pool_waiter_add_bytes
 * reports when a waiting request exceeds the limit. */
#ifndef SLUICE_PICK_POOL_FLOW_WAIT_H
#define SLUICE_PICK_POOL_FLOW_WAIT_H

#include <sys/queue.h>

#include "core/event/lock.h"
#include "pick/pool/flow/evict.h"
#include "pick/pool/flow/flow.h"
#include "pick/pool/pool.h"
#include "pick/pool/prefix/burst.h"

/* Per thread: the list of its notified waiters, of all pools. */
struct pool_wakeup {
    struct lock lock;
    struct flow_items items;       /* of notified waiters */
    struct burst_members released; /* requests whose window has ended (pick/pool/prefix/burst.h) */
    bool notify_pending;           /* a call of `notify` is pending */
    struct pool_wakeup *next;      /* in the list of pending calls */
    void (*notify)(void *user);
    void *user;
};

/* `notify` is called when pool_wakeup_pop has a waiter, from any thread, without a lock held; it
 * may only post a message. */
void pool_wakeup_init(struct pool_wakeup *wakeup, void (*notify)(void *user), void *user);
/* No waiter uses it, and no thread that could notify one is left. */
void pool_wakeup_fini(struct pool_wakeup *wakeup);

/* Embedded in a waiting request, and passed with it (pool_request.waiter). Zeroed except for
 * `wakeup` it is idle. Valid until it is no longer queued; so are the request's subsets and the
 * wakeup. Thread: the wakeup's. */
struct pool_waiter {
    struct flow_item item; /* first: an item is cast to its waiter */
    struct pool_wakeup *wakeup;
    const struct subset *subset, *selection;
    uint64_t profile;          /* hash of the name of the handler's profile that chooses; 0: none */
    struct endpoint *reserved; /* the endpoint with a slot reserved for it; NULL: none */
    uint32_t n_tokens;         /* of the request; estimate */
    uint32_t n_reserved_tokens; /* that count at `reserved` */
    bool in_wakeup_list;        /* in the wakeup's list */
    bool notified;              /* taken from that list */
    bool displaced;             /* another request took its place: its next pick is refused */
    struct pool_lease lease;    /* while the request runs */
    /* With a subset or a profile: a bit for each member of the snapshot of this generation that it
     * allows; NULL: not resolved. Resolved once for each snapshot: a subset may have many
     * addresses. */
    uint64_t *members;
    uint64_t members_generation;
    STAILQ_ENTRY(pool_waiter) orphaned_link; /* while pool_notify_after_update collects them */
    uint64_t max_wait_ns; /* how long it may wait for capacity, by its priority */
    /* Queue deadline (clock_now_ns): when it is reached the caller calls pool_waiter_has_expired,
     * which may set a later one. */
    uint64_t until_ns;
};

/* The next notified waiter, which is to pick again with the same request; or, where its lease is
 * revoked, to end it. Returns: NULL when there is none. Thread: the wakeup's. */
struct pool_waiter *pool_wakeup_pop(struct pool_wakeup *wakeup);
/* The next request that was held and is to pick now. Returns: NULL when there is none. Thread: the
 * wakeup's. */
struct burst_member *pool_wakeup_pop_released(struct pool_wakeup *wakeup);
/* Removes a waiter from the queue, notified or not; an idle one is ignored. */
void pool_dequeue(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome);
/* Adds bytes that the waiting request holds. Returns: false when the queue's limit is exceeded; the
 * request is still queued. */
bool pool_waiter_add_bytes(struct pool *pool, struct pool_waiter *waiter, uint64_t n_bytes);
/* The limit of a wait that has ended. */
enum pool_wait_limit { POOL_WAIT_MAX_WAIT, POOL_WAIT_NO_ENDPOINT };
struct pool_wait_expiry {
    enum pool_wait_limit limit;
    uint64_t waited_ns; /* its value */
};
/* Whether the waiter has waited as long as it may, at its deadline; otherwise it gets a later one.
 */
bool pool_waiter_has_expired(struct pool *pool, struct pool_waiter *waiter,
                             struct pool_wait_expiry *out);
/* Expires refusals and load reports and notifies waiters; does nothing within `gap_ns` of the last
 * time. Thread: any. */
void pool_tick(struct pool *pool, uint64_t gap_ns);

/* Per thread: the readers of the pools that its requests wait for. Zeroed memory is empty. So a
 * tick takes time by the number of these pools, not of the requests. */
struct pool_waited {
    LIST_HEAD(, pool_reader) readers;
};

/* A request waits for the reader's pool; it holds a reference of the reader until
 * pool_waited_remove. All of a reader's are in one list. Thread: the reader's. */
void pool_waited_add(struct pool_waited *waited, struct pool_reader *reader);
/* It no longer waits. */
void pool_waited_remove(struct pool_reader *reader);
static inline bool pool_waited_is_empty(const struct pool_waited *waited) {
    return LIST_EMPTY(&waited->readers);
}
/* pool_tick of each pool. Thread: the readers'. */
void pool_waited_tick(const struct pool_waited *waited, uint64_t gap_ns);

struct pool_flow_stats {
    uint64_t n_waiting, n_bytes;
    size_t n_ids;
    struct flow_band_stats *bands; /* highest priority first, at most as many as asked for */
    size_t n_bands;
};

enum { POOL_MAX_LISTED_BANDS = 64 /* on a page */ };
/* `bands`: an array of `most`. Thread: any. */
void pool_get_flow_stats(struct pool *pool, struct flow_band_stats *bands, size_t most,
                         struct pool_flow_stats *out);

/* The waiter's request, which is idle, is sent with this priority: it may be ended from now on
 * where the pool's configuration says so (evict.h). Thread: the wakeup's. */
void pool_hold_lease(struct pool *pool, struct pool_waiter *waiter, int64_t priority);
/* It has ended; without a lease nothing is done. Before its ticket is released. Thread: the
 * wakeup's. */
void pool_end_lease(struct pool *pool, struct pool_waiter *waiter);
/* Ends requests for which it was too early before, of pools that do so. Thread: the readers'. */
void pool_waited_evict(const struct pool_waited *waited);
/* Whether any of the pools does. Thread: the readers'. */
bool pool_waited_evicts(const struct pool_waited *waited);

struct pool_eviction_stats {
    uint64_t n_leases, n_revocable;
    uint64_t n_revoked, n_confirmed, n_timed_out; /* total */
    double target, pending;
    uint64_t times[EVICTION_TIME_BOUNDS + 2]; /* by EVICTION_TIMES */
};
/* Thread: any. */
void pool_get_eviction(struct pool *pool, struct pool_eviction_stats *out);

/* Of a pool that is measured as a whole (saturation.h). */
struct pool_saturation_stats {
    double stages[N_SATURATION_STAGES]; /* below 0: it has no endpoints */
    double effective;                   /* what decides */
    uint32_t n_stale;                   /* with DETECTOR_LOADS: endpoints without a recent report */
};
/* Thread: any. */
void pool_get_saturation(struct pool *pool, struct pool_saturation_stats *out);

/* The limit that an endpoint of the reader's snapshot, or the pool, has reached for requests of a
 * priority, for messages; NULL: none. `in_flight`: our requests there. Thread: the reader's. */
const char *pool_reached_limit(const struct pool_reader *reader, uint32_t member, int64_t priority,
                               uint32_t in_flight, uint64_t now_ns);

#endif
