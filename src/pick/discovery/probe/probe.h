/* When endpoints are checked, and whether their results make them ready. Without I/O: the caller
 * (prober.h) follows the pools, takes due probes, runs their checks and reports the results. The
 * endpoints of a pool are a group with the same settings. All groups share one schedule and one
 * limit of concurrent checks.
 *
 * Each endpoint has a fixed offset in the interval, from its address, plus a little jitter: checks
 * are spread evenly, and two pickers do not check at the same moment. New endpoints are checked as
 * soon as possible, a thousand within 100 ms.
 *
 * The first check decides: one success makes a new endpoint ready, one failure makes it not ready.
 * After that it takes as many results in a row as the thresholds require.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_PROBE_PROBE_H
#define SLUICE_PICK_DISCOVERY_PROBE_PROBE_H

#include "core/base/random.h"
#include "core/event/timer.h"
#include "pick/pool/snapshot.h"

enum probe_verdict { PROBE_UNKNOWN, PROBE_READY, PROBE_UNREADY };

/* An endpoint to be checked. */
struct probe {
    struct timer_node due;     /* first: a heap node is cast to its probe */
    struct endpoint *endpoint; /* NULL: it was removed from the pool while its check runs */
    struct probe_group *group; /* NULL: the same */
    struct endpoint_address address;
    enum probe_verdict verdict;
    unsigned n_successes, n_failures; /* in a row */
    bool running;
    bool was_late; /* the last check did not count, because this process stood still */
    void *io;      /* the caller's, for the running check */
};

/* The probes of a pool. Empty if zeroed. */
struct probe_group {
    struct probe **items; /* sorted by address */
    size_t n;
    struct pool_health health;
};

/* Empty if zeroed, with a seed in `prng` and `max_running`. */
struct probe_set {
    size_t n; /* of all groups */
    struct timer_heap waiting;
    size_t n_running; /* including those of removed endpoints */
    size_t max_running;
    size_t n_unknown; /* endpoints whose first check has not ended */
    struct prng prng;
    uint64_t salt; /* for the offsets in the interval */
};

/* All groups must be empty. */
void probe_set_fini(struct probe_set *set);

/* Sets the group's endpoints and settings to those of the snapshot; endpoints that stay keep their
 * verdicts. The texts of the settings are borrowed until the next call. Returns: false when out of
 * memory; then the group is empty. */
bool probe_set_update_group(struct probe_set *set, struct probe_group *group,
                            const struct pool_snapshot *snapshot, uint64_t now_ns) SLUICE_MUST_USE;
/* Empties the group. */
void probe_set_remove_group(struct probe_set *set, struct probe_group *group);

/* Returns: a due probe, which is running from now on; NULL if none is due, or too many are
 * running. */
struct probe *probe_set_pop_due(struct probe_set *set, uint64_t now_ns);
/* Returns: when probe_set_pop_due has a probe again; UINT64_MAX: after a check has ended. */
uint64_t probe_set_next_ns(const struct probe_set *set);

/* A check has ended. Returns: the verdict has changed. The probe of a removed endpoint
 * (probe->endpoint is NULL) is freed. */
bool probe_set_finish(struct probe_set *set, struct probe *probe, bool good, uint64_t now_ns);
/* A check could not be carried out: the verdict stays, and the probe is due after the interval. The
 * probe of a removed endpoint is freed. */
void probe_set_skip(struct probe_set *set, struct probe *probe, uint64_t now_ns);

#endif
