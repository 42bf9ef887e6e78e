/* When which endpoint is asked. Each is asked once in an interval, which is longer where there are
 * so many that they would be asked more often than a limit in all; a little later than that, at
 * random, so that neither they nor other pickers fall into step; and less and less often while it
 * does not answer. Sans I/O: who has a clock passes the time in.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_SCHEDULE_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_SCHEDULE_H

#include "core/base/dice.h"
#include "core/event/deadlines.h"

/* How often those of a pool are asked. Zeroed it needs scrape_pace_set. */
struct scrape_pace {
    uint64_t interval_ns;
    uint64_t spacing_ns; /* from one of them to the next, on average at least */
    size_t n_turns;      /* those that wait and those that were taken */
};

void scrape_pace_set(struct scrape_pace *pace, uint64_t interval_ns, uint32_t most_per_second);

/* Embedded in what is asked. Zeroed memory is in no schedule. */
struct scrape_turn {
    struct deadline deadline; /* first: a deadline is cast to its turn */
    struct scrape_pace *pace;
    unsigned n_failures; /* in a row */
};

/* Zeroed, with a seed in the dice, it is an empty one that needs a pace: that of all, with the
 * shortest interval that somebody has, and the limit that holds in any second. */
struct scrape_schedule {
    struct deadlines waiting;
    struct dice dice;
    struct scrape_pace all;
    uint64_t next_ns; /* that the limit would have the next one at */
};

void scrape_schedule_fini(struct scrape_schedule *schedule);
/* From now on. What waits keeps its time. */
void scrape_schedule_set_pace(struct scrape_schedule *schedule, uint64_t interval_ns,
                              uint32_t most_per_second);
/* How long it is from one time to the next for each of this pace, without what is random. */
uint64_t scrape_schedule_interval_ns(const struct scrape_schedule *schedule,
                                     const struct scrape_pace *pace);

/* A new one: its time is within one interval. Returns: false when out of memory. */
bool scrape_schedule_add(struct scrape_schedule *schedule, struct scrape_turn *turn,
                         struct scrape_pace *pace, uint64_t now_ns)
    __attribute__((warn_unused_result));
/* Whether it waits or was taken. */
void scrape_schedule_remove(struct scrape_schedule *schedule, struct scrape_turn *turn);
/* Returns: one whose time has come, taken out until scrape_schedule_put; NULL: none. */
struct scrape_turn *scrape_schedule_take(struct scrape_schedule *schedule, uint64_t now_ns);
/* Puts one back that was taken at `taken_ns`, and answered, or did not. Returns: false when out of
 * memory; it then stays out. */
bool scrape_schedule_put(struct scrape_schedule *schedule, struct scrape_turn *turn,
                         uint64_t taken_ns, uint64_t now_ns, bool answered)
    __attribute__((warn_unused_result));
/* When to take again; UINT64_MAX: there is nothing to. Several that are due within some
 * milliseconds are taken together. */
uint64_t scrape_schedule_next_ns(const struct scrape_schedule *schedule, uint64_t now_ns);

#endif
