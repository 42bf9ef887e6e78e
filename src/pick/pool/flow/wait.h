/* Requests that meet a pool without room for them, and wait for some (flow.h has the order). A
 * request waits where every endpoint that it may go to is full: of our own requests in flight, of
 * requests that wait there, or of its KV cache, as the configuration says (`saturation`).
 *
 * When an endpoint has room again (an answer ended, it said another load, it is ready) the first
 * that may go there is called: a place at that endpoint is kept for it, so that as many are called
 * as there is room, and its bell rings. The request then picks again, with what holds by then;
 * it gives up the kept place in the same moment. Should it find no room after all, it has its place
 * in the queue again.
 *
 * One that may go to no endpoint of the pool any more, since all have left it, is called as well,
 * to be told.
 *
 * Whoever comes while others wait that may go anywhere waits behind them, or before those of lower
 * priorities. While only such wait that are named a subset, a request for which there is room is
 * picked for at once.
 *
 * Time alone makes room, too (a load grows too old to count, an endpoint is avoided no more): while
 * something waits pool_tick is called now and then. */
#ifndef SLUICE_PICK_POOL_FLOW_WAIT_H
#define SLUICE_PICK_POOL_FLOW_WAIT_H

#include "core/event/lock.h"
#include "pick/pool/flow/flow.h"
#include "pick/pool/pool.h"

/* Where a thread is told that some of what waits of it was called, in whichever pools. */
struct pool_wakeup {
    struct lock lock;
    struct flow_item *first, *last; /* those that were called */
    bool notify_pending;            /* somebody is about to ring */
    struct pool_wakeup *next;       /* for whom that is */
    void (*notify)(void *user);
    void *user;
};

/* `ring` is called when pool_wakeup_pop has something, from any thread, without a lock; it may only
 * post a message. */
void pool_wakeup_init(struct pool_wakeup *wakeup, void (*notify)(void *user), void *user);
/* Nothing waits there, and whoever could make room has ended. */
void pool_wakeup_fini(struct pool_wakeup *wakeup);

/* Embedded in what waits, and given with the request (pool_request.waiter). Zeroed memory but for
 * the bell does not wait. Lives until it does not wait any more; so do the subsets of its request
 * and the bell. Thread: the bell's. */
struct pool_waiter {
    struct flow_item item; /* first: an item is cast to its waiter */
    struct pool_wakeup *wakeup;
    const struct subset *subset, *selection;
    struct endpoint *reserved;         /* where a place is kept for it; NULL: nowhere */
    bool in_wakeup_list;               /* among those of the bell */
    bool notified;                     /* and was taken from there */
    struct pool_waiter *next_orphaned; /* while such are looked for */
    uint64_t until_ns; /* how long it may wait (clock_now_ns); the caller's to look at */
};

/* The next that is to pick again, with the same request. Returns: NULL when there is none.
 * Thread: the bell's. */
struct pool_waiter *pool_wakeup_pop(struct pool_wakeup *wakeup);
/* It waits no more, whether it was called or not; one that does not wait is left alone. */
void pool_dequeue(struct pool *pool, struct pool_waiter *waiter, enum flow_outcome outcome);
/* It holds so many bytes more. Returns: false when that is more than the queues may; it waits
 * on. */
bool pool_waiter_add_bytes(struct pool *pool, struct pool_waiter *waiter, uint64_t n_bytes);
/* Time has passed: `gap_ns` at least since the last time, or it does nothing. Thread: any. */
void pool_tick(struct pool *pool, uint64_t gap_ns);

struct pool_flow_stats {
    uint64_t n_waiting, n_bytes;
    size_t n_ids;
    struct flow_band_stats *bands; /* as many as there was room for, the highest first */
    size_t n_bands;
};

/* `bands`: room for `most`. Thread: any. */
void pool_get_flow_stats(struct pool *pool, struct flow_band_stats *bands, size_t most,
                         struct pool_flow_stats *out);

/* Which of its limits an endpoint has reached; NULL: none. `in_flight`: of ours, there. */
const char *pool_reached_limit(const struct pool_snapshot *snapshot, uint32_t member,
                               uint32_t in_flight, uint64_t now_ns);

#endif
