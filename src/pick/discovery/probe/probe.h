/* Which endpoints are checked when, and what their answers come to. Sans I/O: who has a clock and
 * sockets (prober.h) follows the pools, takes a check that is due, makes it, and says what came of
 * it. The endpoints of a pool are a group: they are checked in the same way. All groups have one
 * queue, and one limit to how many are checked at once.
 *
 * Each endpoint has a place of its own in the interval, by its address, and is checked there with a
 * little jitter: however many there are, they are spread evenly, and two pickers do not ask at the
 * same moment. One that is new is checked as soon as it can be, a thousand of them in 100 ms at
 * most.
 *
 * Its first check decides: one success makes an endpoint ready that was never seen before, one
 * failure settles that it is not. Later ones need as many in a row as the thresholds say.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_PROBE_PROBE_H
#define SLUICE_PICK_DISCOVERY_PROBE_PROBE_H

#include "core/base/random.h"
#include "core/event/timer.h"
#include "pick/pool/snapshot.h"

enum probe_verdict { PROBE_UNKNOWN, PROBE_READY, PROBE_UNREADY };

/* An endpoint that is checked. */
struct probe {
    struct timer_node due;     /* first: a deadline is cast to its probe */
    struct endpoint *endpoint; /* NULL: it has left the pool, and its check is still under way */
    struct probe_group *group; /* NULL: likewise */
    struct endpoint_address address;
    enum probe_verdict verdict;
    unsigned n_successes, n_failures; /* in a row */
    bool running;
    void *io; /* for who makes the check */
};

/* Those of a pool. Zeroed it is empty. */
struct probe_group {
    struct probe **items; /* in the order of their addresses */
    size_t n;
    struct pool_health health;
};

/* Zeroed, with a seed in the dice and `max_running`, it is empty. */
struct probe_set {
    size_t n; /* of all groups */
    struct timer_heap waiting;
    size_t n_running; /* those of endpoints that have left, too */
    size_t max_running;
    size_t n_unknown; /* whose first check has not ended */
    struct prng prng;
    uint64_t salt; /* of places in the interval */
};

/* Its groups are empty. */
void probe_set_fini(struct probe_set *set);

/* From now on these are checked, as the snapshot says; endpoints that stay keep what is known of
 * them. The texts of its health are borrowed until the next time. Returns: false when out of
 * memory: then nothing of the group is checked. */
bool probe_set_update_group(struct probe_set *set, struct probe_group *group,
                            const struct pool_snapshot *snapshot, uint64_t now_ns)
    __attribute__((warn_unused_result));
/* Nothing of the group is checked any more; it is empty. */
void probe_set_remove_group(struct probe_set *set, struct probe_group *group);

/* Returns: one whose check is to begin now, which is running from here on; NULL: none, or as many
 * run as may. */
struct probe *probe_set_pop_due(struct probe_set *set, uint64_t now_ns);
/* Returns: when to ask again; UINT64_MAX: when a check has ended. */
uint64_t probe_set_next_ns(const struct probe_set *set);

/* Its check has ended. Returns: the verdict has changed with it. The probe of an endpoint that has
 * left the pool is gone when this returns (probe->endpoint tells before). */
bool probe_set_finish(struct probe_set *set, struct probe *probe, bool good, uint64_t now_ns);

#endif
