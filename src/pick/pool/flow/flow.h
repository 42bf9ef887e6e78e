/* Requests that wait for an endpoint, and which of them is next: the highest priority first (a band
 * for each), within a band those of each fairness id in turn, of one id in the order they came. One
 * that fits nowhere now is passed over and keeps its place.
 *
 * What waits has its place embedded (struct flow_item), so waiting takes no memory of the queues'
 * but a record for each id that something waits for: there are never more of these than items. Ids
 * are known by a hash of 128 bits with a secret key, so nobody can choose some that meet, and an id
 * takes the same memory however long it is.
 *
 * Sans I/O, without a lock and without a clock: whoever owns a `struct flow` calls for one thread
 * at a time and says what time it is.
 *
 * It refuses to know endpoints: who may go where is the caller's to say. */
#ifndef SLUICE_PICK_POOL_FLOW_FLOW_H
#define SLUICE_PICK_POOL_FLOW_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/hash.h"
#include "core/base/metric/histogram.h"
#include "core/base/str.h"

/* What is kept in the queues at most; 0: nothing may. */
struct flow_band_limits {
    int64_t priority;
    uint64_t max_requests;
};

struct flow_limits {
    uint64_t max_requests;
    uint64_t max_bytes;
    const struct flow_band_limits *bands; /* of those that have one of their own */
    size_t n_bands;
    uint64_t default_band_max_requests; /* of each other band; 0: as many as in all */
};

enum flow_state {
    FLOW_IDLE,     /* it does not wait; zeroed memory */
    FLOW_QUEUED,   /* in its line */
    FLOW_NOTIFIED, /* room was found; counts as waiting until it is out, or put back */
};

/* How the wait of an item ended. */
enum flow_outcome {
    FLOW_DISPATCHED,
    FLOW_EXPIRED,
    FLOW_ABORTED, /* nobody wants it any more */
    FLOW_REFUSED, /* something else was wrong with it by then */
    N_FLOW_OUTCOMES,
};

struct flow_id;
struct flow_band;

/* A place in the queues. All of it is the queues', but `before` and `after` of one that is called,
 * which its caller may use. */
struct flow_item {
    struct flow_item *prev, *next;
    struct flow_id *id;
    uint64_t seq;       /* of its arrival */
    uint64_t queued_ns; /* when it began to wait */
    uint64_t n_bytes;
    enum flow_state state;
};

struct flow {
    struct flow_band *bands; /* the highest first */
    struct flow_id **slots;  /* ids, by their hashes */
    size_t slots_mask;       /* a power of two less 1 */
    size_t n_ids;
    uint64_t n_queued, n_notified;
    uint64_t n_bytes; /* of both */
    uint64_t next_number;
    struct hash_key key;
};

/* Empty. */
void flow_init(struct flow *flow);
/* Nothing waits. */
void flow_fini(struct flow *flow);

/* What keeps a request out. */
enum flow_full { FLOW_FITS, FLOW_FULL_REQUESTS, FLOW_FULL_BYTES, FLOW_FULL_BAND };
enum flow_full flow_check_limits(const struct flow *flow, const struct flow_limits *limits,
                                 int64_t priority, uint64_t n_bytes);

/* Queues an item that is out, with its `n_bytes`; limits are the caller's to check. `fairness`: the
 * id; empty is one, too. Returns: false when out of memory. */
bool flow_add(struct flow *flow, struct flow_item *item, int64_t priority, struct str fairness_id,
              uint64_t now_ns) __attribute__((warn_unused_result));
/* So many bytes more. */
void flow_add_bytes(struct flow *flow, struct flow_item *item, uint64_t n_bytes);

/* The first that `fits`. Returns: NULL when none does. */
struct flow_item *flow_find(struct flow *flow,
                            bool (*fits)(void *user, const struct flow_item *item), void *user);
/* It is queued, and leaves its line; its id is the last of its band to be asked again. */
void flow_notify(struct flow *flow, struct flow_item *item);
/* One that was called found no room: it has its place in its line again, and its id the next
 * turn. */
void flow_requeue(struct flow *flow, struct flow_item *item);
/* It waits no more, in whichever state it is; one that is out is left alone. */
void flow_remove(struct flow *flow, struct flow_item *item, enum flow_outcome outcome,
                 uint64_t now_ns);

int64_t flow_priority(const struct flow_item *item);

/* ---- a look from outside --------------------------------------------------------------------- */

struct flow_band_stats {
    int64_t priority;
    uint64_t n_waiting, n_bytes; /* called ones too */
    size_t n_ids;
    uint64_t n_full; /* kept out because something was full */
    struct metric_distribution waited[N_FLOW_OUTCOMES];
};

/* Counts one that was kept out. Returns: false when out of memory, and it is not counted. */
bool flow_count_rejected(struct flow *flow, int64_t priority);
/* The first `most` bands in their order. Returns: how many. */
size_t flow_get_stats(const struct flow *flow, struct flow_band_stats *out, size_t most);
/* Forgets bands in which nothing waits and that `keep` does not want, with their numbers. */
void flow_remove_idle_bands(struct flow *flow, bool (*keep)(const void *user, int64_t priority),
                            const void *user);

#endif
