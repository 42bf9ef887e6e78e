/* Flow control: the queue of requests that wait for an endpoint, and their order: higher priorities
 * first (one band per priority), within a band by its fairness policy (round robin over fairness
 * ids, or without regard to them), within an id by its ordering policy (arrival, or deadline). A
 * request that fits no endpoint now is passed over and keeps its position.
 *
 * Queue entries are embedded in the waiting requests (struct flow_item), so the queue allocates
 * only one record per fairness id: never more of them than items. Ids are identified by a keyed
 * 128-bit hash, so that clients cannot create collisions, and long ids take no more memory than
 * short ones.
 *
 * Sans I/O, without lock and clock: the caller serializes the calls and passes the time. Which item
 * fits an endpoint is decided by the caller's callback.
 *
 * A full queue keeps its promises: a request of a higher priority takes the place of one of the
 * lowest band, and within a band one of a fairness id with fewer queued requests, or bytes, that of
 * the id with the most; always of the newest (flow_find_victim). */
#ifndef SLUICE_PICK_POOL_FLOW_FLOW_H
#define SLUICE_PICK_POOL_FLOW_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/compiler.h"
#include "core/base/hash.h"
#include "core/base/metric/histogram.h"
#include "core/base/str.h"
#include "core/event/timer_heap.h"
#include "pick/pool/flow/programs.h"

/* Which fairness id of a band is next. */
enum flow_fairness {
    FLOW_ROUND_ROBIN,   /* each id in turn */
    FLOW_GLOBAL_STRICT, /* ids make no difference: the first item of the band by its ordering */
    FLOW_BY_PROGRAM,    /* by what the ids were served, and how long their first items have waited
                           (programs.h), of the first FLOW_MAX_PROGRAMS in turn */
};

enum { FLOW_MAX_PROGRAMS = 64 };

/* The order of a fairness id's items. */
enum flow_ordering {
    FLOW_BY_ARRIVAL,
    FLOW_BY_DEADLINE, /* the earliest deadline first; those without one last, by arrival */
};

/* No limit but that of the whole queue. */
#define FLOW_UNLIMITED UINT64_MAX

/* What holds for the requests of a priority. */
struct flow_band_rules {
    int64_t priority;
    uint64_t max_requests, max_bytes; /* limits on what is queued; 0: nothing is queued */
    uint64_t max_wait_ns;             /* 0: that of the whole queue */
    enum flow_fairness fairness;
    enum flow_ordering ordering;
};

/* Limits on queued requests and bytes; 0: nothing is queued. */
struct flow_limits {
    uint64_t max_requests;
    uint64_t max_bytes;
    const struct flow_band_rules *bands; /* of some priorities */
    size_t n_bands;
    /* Of all other priorities from 0 on, and below 0. NULL: no limits, round robin, by arrival. */
    const struct flow_band_rules *others, *negative;
};

enum flow_state {
    FLOW_IDLE,     /* not queued; zeroed memory */
    FLOW_QUEUED,   /* in the list of its id */
    FLOW_NOTIFIED, /* was notified of capacity; counts as waiting until it is removed or requeued */
    FLOW_ASIDE,    /* see flow_set_aside */
};

/* How the wait of an item ended. */
enum flow_outcome {
    FLOW_DISPATCHED,
    FLOW_EXPIRED,
    FLOW_ABORTED,   /* cancelled by the client or the proxy */
    FLOW_REFUSED,   /* refused for another reason meanwhile */
    FLOW_DISPLACED, /* another request took its place */
    N_FLOW_OUTCOMES,
};

struct flow_id;
struct flow_lane;
struct flow_band;
struct flow_node;

TAILQ_HEAD(flow_items, flow_item);

/* An entry of the queue. The fields belong to the queue; `link` of a notified item may be used by
 * the caller. */
struct flow_item {
    TAILQ_ENTRY(flow_item) link;
    TAILQ_ENTRY(flow_item) lane_link;
    struct flow_id *id;
    struct flow_lane *lane;
    uint64_t seq;               /* of its arrival */
    uint64_t order;             /* within its id: the lowest is first */
    struct timer_node by_order; /* in its lane's heap, in a band ordered by deadlines */
    uint64_t queued_ns;         /* when it was queued */
    uint64_t n_bytes;
    enum flow_state state;
};

struct flow {
    TAILQ_HEAD(flow_bands, flow_band) bands; /* highest priority first */
    struct flow_node **slots;                /* a hash table */
    size_t slots_mask;                       /* number of slots, a power of two, less 1 */
    size_t n_nodes, n_ids, n_places;
    uint64_t first_turn, last_turn; /* of those that ids have got */
    uint64_t n_queued, n_notified;
    uint64_t n_bytes; /* queued and notified */
    uint64_t next_number;
    struct hash_key key;
    struct programs programs; /* for FLOW_BY_PROGRAM */
    struct program_rules program_rules;
};

/* Makes the queue empty. */
void flow_init(struct flow *flow);
/* Nothing is queued. */
void flow_fini(struct flow *flow);

/* The rules of a priority. Returns: never NULL. */
const struct flow_band_rules *flow_limits_rules(const struct flow_limits *limits, int64_t priority);

/* The limit that keeps a request out. */
enum flow_full {
    FLOW_FITS,
    FLOW_FULL_REQUESTS,
    FLOW_FULL_BYTES,
    FLOW_FULL_BAND,       /* by requests */
    FLOW_FULL_BAND_BYTES, /* by bytes */
};
enum flow_full flow_check_limits(const struct flow *flow, const struct flow_limits *limits,
                                 int64_t priority, uint64_t n_bytes);

/* The queued item to be removed for a new request that a limit keeps out, or for one that is queued
 * and has grown (`grown`, otherwise NULL). Its removal may not suffice. Returns: NULL: none. */
struct flow_item *flow_find_victim(struct flow *flow, enum flow_full full, int64_t priority,
                                   struct str fairness_id, uint64_t n_bytes,
                                   const struct flow_item *grown);

/* What would be without some of the queued items: sets one aside, so that it neither is queued nor
 * counts. Until flow_put_back has put all of them back, the last one first, only limits are checked
 * and victims found. Their positions and their ids' turns are as before then. */
void flow_set_aside(struct flow *flow, struct flow_item *item);
void flow_put_back(struct flow *flow, struct flow_item *item);

/* A request that is to be queued. */
struct flow_arrival {
    int64_t priority;
    struct str fairness_id;  /* "" is an id too */
    struct keyed_hash place; /* of what the item waits for; items of the same place fit the same
                                endpoints */
    const struct flow_band_rules *rules; /* NULL: round robin, by arrival */
    uint64_t deadline_ns;                /* of FLOW_BY_DEADLINE; 0: none */
    uint64_t now_ns;
};

/* Queues an idle item with its `n_bytes`; the caller has checked the limits. Fairness and ordering
 * of a band are those of its first item while it has any. Returns: false when out of memory. */
bool flow_add(struct flow *flow, struct flow_item *item,
              const struct flow_arrival *arrival) SLUICE_MUST_USE;
/* Adds to the bytes of an item. */
void flow_add_bytes(struct flow *flow, struct flow_item *item, uint64_t n_bytes);
/* The limit of bytes that is exceeded with the item, which is queued. */
enum flow_full flow_check_bytes(const struct flow *flow, const struct flow_limits *limits,
                                const struct flow_item *item);

/* The first item in order that `fits`: the last one for which it returns true. It is asked for one
 * item of each place at most, so the search takes time by the number of places. Returns: NULL when
 * none fits. */
struct flow_item *flow_find(struct flow *flow,
                            bool (*fits)(void *user, const struct flow_item *item), void *user);
/* The highest priority above `above` with a queued item of which `is_held_up` is true. Returns:
 * false: there is none. */
bool flow_find_demand(const struct flow *flow, int64_t above,
                      bool (*is_held_up)(void *user, int64_t priority), void *user,
                      int64_t *priority);
/* Counts running requests that are ended for those of this priority that are queued. */
void flow_count_revoked(struct flow *flow, int64_t priority, uint64_t n);
/* Whether any item of this priority or a higher one is queued. */
bool flow_has_queued_from(const struct flow *flow, int64_t priority);
/* Visits all queued items, or until `visit` returns true. Returns: whether it did. */
bool flow_visit(struct flow *flow, bool (*visit)(void *user, struct flow_item *item), void *user);
/* Takes a queued item out of its list; its fairness id becomes the last of its band. */
void flow_notify(struct flow *flow, struct flow_item *item);
/* Puts a notified item that found no capacity back to its position; its id becomes the next of its
 * band. */
void flow_requeue(struct flow *flow, struct flow_item *item);
/* Removes an item in any state; an idle one is ignored. */
void flow_remove(struct flow *flow, struct flow_item *item, enum flow_outcome outcome,
                 uint64_t now_ns);

int64_t flow_priority(const struct flow_item *item);

/* The hash of a fairness id. Thread: any. */
struct keyed_hash flow_hash_id(const struct flow *flow, struct str fairness_id);
/* A request of the fairness id with this hash is sent (PROGRAMS_DEEPEST), or has ended
 * without flow_add_service. */
void flow_begin_turn(struct flow *flow, struct keyed_hash id, uint64_t now_ns);
void flow_end_turn(struct flow *flow, struct keyed_hash id, uint64_t now_ns);
/* A request of the fairness id with this hash has ended, whose tokens are the cost. */
void flow_add_service(struct flow *flow, struct keyed_hash id, double cost, uint64_t now_ns);

/* ---- statistics ------------------------------------------------------------------------------ */

struct flow_band_stats {
    int64_t priority;
    uint64_t n_waiting, n_bytes; /* notified ones included */
    size_t n_ids;
    uint64_t n_full;    /* kept out by a limit */
    uint64_t n_revoked; /* running requests that were to end for those of this priority */
    struct metric_distribution waited[N_FLOW_OUTCOMES];
};

/* Counts a request that was kept out. Returns: false when out of memory; it is not counted. */
bool flow_count_rejected(struct flow *flow, int64_t priority);
/* The first `most` bands in order of priority. Returns: their number. */
size_t flow_get_stats(const struct flow *flow, struct flow_band_stats *out, size_t most);
/* Frees bands without items for which `keep` is false, with their counts. */
void flow_remove_idle_bands(struct flow *flow, bool (*keep)(const void *user, int64_t priority),
                            const void *user);

#endif
