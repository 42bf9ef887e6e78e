/* When which endpoint is asked. Each is asked once in an interval, which is longer where there are
 * so many that they would be asked more often than a limit in all; a little later than that, at
 * random, so that neither they nor other pickers fall into step; and less and less often while it
 * does not answer. Sans I/O: who has a clock passes the time in.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_SCHEDULE_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_SCHEDULE_H

#include "core/base/random.h"
#include "core/event/timer.h"

/* How often those of a pool are asked. Zeroed it needs scrape_rate_set. */
struct scrape_rate {
    uint64_t interval_ns;
    uint64_t spacing_ns; /* from one of them to the next, on average at least */
    size_t n_jobs;       /* those that wait and those that were taken */
};

void scrape_rate_set(struct scrape_rate *rate, uint64_t interval_ns, uint32_t most_per_second);

/* Embedded in what is asked. Zeroed memory is in no schedule. */
struct scrape_job {
    struct timer_node deadline; /* first: a deadline is cast to its turn */
    struct scrape_rate *rate;
    unsigned n_failures; /* in a row */
};

/* Zeroed, with a seed in the dice, it is an empty one that needs a pace: that of all, with the
 * shortest interval that somebody has, and the limit that holds in any second. */
struct scrape_schedule {
    struct timer_heap waiting;
    struct prng prng;
    struct scrape_rate all;
    uint64_t next_ns; /* that the limit would have the next one at */
};

void scrape_schedule_fini(struct scrape_schedule *schedule);
/* From now on. What waits keeps its time. */
void scrape_schedule_set_rate(struct scrape_schedule *schedule, uint64_t interval_ns,
                              uint32_t most_per_second);
/* How long it is from one time to the next for each of this pace, without what is random. */
uint64_t scrape_schedule_interval_ns(const struct scrape_schedule *schedule,
                                     const struct scrape_rate *rate);

/* A new one: its time is within one interval. Returns: false when out of memory. */
bool scrape_schedule_add(struct scrape_schedule *schedule, struct scrape_job *job,
                         struct scrape_rate *rate, uint64_t now_ns)
    __attribute__((warn_unused_result));
/* Whether it waits or was taken. */
void scrape_schedule_remove(struct scrape_schedule *schedule, struct scrape_job *job);
/* Returns: one whose time has come, taken out until scrape_schedule_put_back; NULL: none. */
struct scrape_job *scrape_schedule_pop_due(struct scrape_schedule *schedule, uint64_t now_ns);
/* Puts one back that was taken at `taken_ns`, and answered, or did not. Returns: false when out of
 * memory; it then stays out. */
bool scrape_schedule_put_back(struct scrape_schedule *schedule, struct scrape_job *job,
                              uint64_t taken_ns, uint64_t now_ns, bool answered)
    __attribute__((warn_unused_result));
/* When to take again; UINT64_MAX: there is nothing to. Several that are due within some
 * milliseconds are taken together. */
uint64_t scrape_schedule_next_ns(const struct scrape_schedule *schedule, uint64_t now_ns);

#endif
