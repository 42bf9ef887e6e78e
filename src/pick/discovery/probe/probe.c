/* A heap of due times, and the counts of successes and failures of each endpoint. */
#include "pick/discovery/probe/probe.h"

#include <assert.h>
#include <stdlib.h>

/* The time between the first checks of new endpoints. */
static const uint64_t NEW_SPACING_NS = 100000;
enum { JITTER_SHARE = 10 };

static struct probe *probe_new(const struct pool_member *member) {
    struct probe *probe = calloc(1, sizeof(*probe));
    if (probe) {
        probe->address = member->address;
    }
    return probe;
}

/* Removes the probe. While its check runs it stays, without an endpoint. */
static void remove_probe(struct probe_set *set, struct probe *probe) {
    set->n_unknown -= probe->verdict == PROBE_UNKNOWN;
    timer_heap_remove(&set->waiting, &probe->due);
    set->n--;
    probe->endpoint = NULL;
    probe->group = NULL;
    if (!probe->running) {
        free(probe);
    }
}

void probe_set_remove_group(struct probe_set *set, struct probe_group *group) {
    for (size_t i = 0; i < group->n; i++) {
        remove_probe(set, group->items[i]);
    }
    free(group->items);
    group->items = NULL;
    group->n = 0;
}

void probe_set_fini(struct probe_set *set) {
    assert(set->n == 0 && set->n_running == 0 && set->n_unknown == 0);
    timer_heap_fini(&set->waiting);
}

/* ---- due times ------------------------------------------------------------------------------- */

/* Returns: the next time of the endpoint's offset in the interval, plus up to a tenth of the
 * interval. */
static uint64_t next_time(struct probe_set *set, const struct probe *probe, uint64_t now_ns) {
    uint64_t interval_ns = probe->group->health.interval_ns;
    uint64_t place_ns = (endpoint_address_hash(&probe->address) ^ set->salt) % interval_ns;
    uint64_t into_ns = now_ns % interval_ns;
    uint64_t wait_ns = place_ns > into_ns ? place_ns - into_ns : interval_ns - (into_ns - place_ns);
    return now_ns + wait_ns + prng_share(&set->prng, interval_ns / JITTER_SHARE);
}

struct probe *probe_set_pop_due(struct probe_set *set, uint64_t now_ns) {
    if (set->n_running >= set->max_running) {
        return NULL;
    }
    struct probe *probe = (struct probe *)(void *)timer_heap_pop_due(&set->waiting, now_ns);
    if (probe) {
        probe->running = true;
        set->n_running++;
    }
    return probe;
}

uint64_t probe_set_next_ns(const struct probe_set *set) {
    return set->n_running < set->max_running ? timer_heap_next_ns(&set->waiting) : UINT64_MAX;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Assigns the member to `probe`. If the probe is not scheduled (it is new, or there was no memory)
 * it is due soon, after `n_new` others. */
static bool assign_probe(struct probe_set *set, struct probe *probe,
                         const struct pool_member *member, size_t *n_new, uint64_t now_ns) {
    probe->endpoint = member->endpoint;
    if (probe->running || probe->due.heap_index > 0) {
        return true;
    }
    return timer_heap_set(&set->waiting, &probe->due, now_ns + (*n_new)++ * NEW_SPACING_NS);
}

/* Makes the list of the snapshot's endpoints, with the probes that exist. */
static bool merge_probes(struct probe_set *set, struct probe_group *group,
                         const struct pool_snapshot *snapshot, uint64_t now_ns) {
    struct probe **items = calloc((size_t)snapshot->n_members + 1, sizeof(struct probe *));
    size_t old = 0, n = 0, n_new = 0;
    bool room = items != NULL;
    for (uint32_t i = 0; room && i < snapshot->n_members; i++) {
        const struct pool_member *member = &snapshot->members[i];
        while (old < group->n &&
               endpoint_address_compare(&group->items[old]->address, &member->address) < 0) {
            remove_probe(set, group->items[old++]);
        }
        bool same =
            old < group->n && endpoint_address_equal(&group->items[old]->address, &member->address);
        struct probe *probe = same ? group->items[old++] : probe_new(member);
        room = probe != NULL;
        if (room) {
            items[n++] = probe;
            probe->group = group;
            set->n += !same;
            set->n_unknown += !same;
            room = assign_probe(set, probe, member, &n_new, now_ns);
        }
    }
    while (old < group->n) {
        remove_probe(set, group->items[old++]);
    }
    free(group->items);
    group->items = items;
    group->n = n;
    return room;
}

/* The interval has changed: schedules waiting probes anew. */
static bool reschedule_group(struct probe_set *set, const struct probe_group *group,
                             uint64_t now_ns) {
    bool room = true;
    for (size_t i = 0; room && i < group->n; i++) {
        struct probe *probe = group->items[i];
        if (!probe->running && probe->verdict != PROBE_UNKNOWN) {
            room = timer_heap_set(&set->waiting, &probe->due, next_time(set, probe, now_ns));
        }
    }
    return room;
}

bool probe_set_update_group(struct probe_set *set, struct probe_group *group,
                            const struct pool_snapshot *snapshot, uint64_t now_ns) {
    uint64_t interval_ns = group->health.interval_ns;
    group->health = snapshot->spec->health;
    if (set->salt == 0) {
        set->salt = prng_next(&set->prng) | 1;
    }
    if (group->health.kind == POOL_HEALTH_NONE) {
        probe_set_remove_group(set, group);
        return true;
    }
    bool room = merge_probes(set, group, snapshot, now_ns);
    if (room && group->health.interval_ns != interval_ns) {
        room = reschedule_group(set, group, now_ns);
    }
    if (!room) {
        probe_set_remove_group(set, group);
    }
    return room;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Returns: the verdict with this result. */
static enum probe_verdict judge_probe(struct probe *probe, bool good) {
    const struct pool_health *health = &probe->group->health;
    probe->n_successes = good ? probe->n_successes + 1 : 0;
    probe->n_failures = good ? 0 : probe->n_failures + 1;
    if (probe->verdict == PROBE_UNKNOWN) {
        return good ? PROBE_READY : PROBE_UNREADY;
    }
    if (good && probe->n_successes >= health->n_healthy) {
        return PROBE_READY;
    }
    if (!good && probe->n_failures >= health->n_unhealthy) {
        return PROBE_UNREADY;
    }
    return probe->verdict;
}

/* Returns: false for the probe of a removed endpoint, which has been freed. */
static bool end_check(struct probe_set *set, struct probe *probe) {
    assert(probe->running);
    probe->running = false;
    set->n_running--;
    if (!probe->endpoint) {
        free(probe);
        return false;
    }
    return true;
}

static void schedule_next(struct probe_set *set, struct probe *probe, uint64_t now_ns) {
    if (!timer_heap_set(&set->waiting, &probe->due, next_time(set, probe, now_ns))) {
        probe->due.heap_index = 0; /* out of memory: it is checked again when the pool changes */
    }
}

void probe_set_skip(struct probe_set *set, struct probe *probe, uint64_t now_ns) {
    if (end_check(set, probe)) {
        schedule_next(set, probe, now_ns);
    }
}

bool probe_set_finish(struct probe_set *set, struct probe *probe, bool good, uint64_t now_ns) {
    if (!end_check(set, probe)) {
        return false;
    }
    enum probe_verdict before = probe->verdict;
    probe->verdict = judge_probe(probe, good);
    set->n_unknown -= before == PROBE_UNKNOWN;
    schedule_next(set, probe, now_ns);
    return probe->verdict != before;
}
