/* When each endpoint is scraped: once in an interval, which is extended when all endpoints together
 * would exceed the rate limit. Random jitter keeps endpoints and pickers from falling into step,
 * and failing endpoints are scraped less often. Without I/O: the caller passes the time.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_SCHEDULE_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_SCHEDULE_H

#include "core/base/compiler.h"
#include "core/base/random.h"
#include "core/event/timer.h"

/* The rate of one pool. Zeroed, it needs scrape_rate_set. */
struct scrape_rate {
    uint64_t interval_ns;
    uint64_t spacing_ns; /* average minimum between two jobs */
    size_t n_jobs;       /* in the schedule, or taken out */
};

void scrape_rate_set(struct scrape_rate *rate, uint64_t interval_ns, uint32_t most_per_second);

/* Embedded in what is scraped. Zeroed, it is in no schedule. */
struct scrape_job {
    struct timer_node deadline; /* first: a heap node is cast to its job */
    struct scrape_rate *rate;
    unsigned n_failures; /* in a row */
};

/* Zeroed, with a seed in `prng`, it is empty and needs scrape_schedule_set_rate: the shortest
 * interval of all pools, and the limit that holds for all together in any second. */
struct scrape_schedule {
    struct timer_heap waiting;
    struct prng prng;
    struct scrape_rate all;
    uint64_t next_ns; /* the earliest time that the limit allows */
};

void scrape_schedule_fini(struct scrape_schedule *schedule);
/* Applies from now on. Jobs in the schedule keep their times. */
void scrape_schedule_set_rate(struct scrape_schedule *schedule, uint64_t interval_ns,
                              uint32_t most_per_second);
/* The time between two runs of each job at this rate, without jitter. */
uint64_t scrape_schedule_interval_ns(const struct scrape_schedule *schedule,
                                     const struct scrape_rate *rate);

/* Adds a job, due within one interval. Returns: false when out of memory. */
bool scrape_schedule_add(struct scrape_schedule *schedule, struct scrape_job *job,
                         struct scrape_rate *rate, uint64_t now_ns) SLUICE_MUST_USE;
/* The job may be in the schedule or taken out. */
void scrape_schedule_remove(struct scrape_schedule *schedule, struct scrape_job *job);
/* Returns: a due job, taken out until scrape_schedule_put_back; NULL: none. */
struct scrape_job *scrape_schedule_pop_due(struct scrape_schedule *schedule, uint64_t now_ns);
/* Puts back a job that was taken at `taken_ns`, with its result. Returns: false when out of memory;
 * it then stays out. */
bool scrape_schedule_put_back(struct scrape_schedule *schedule, struct scrape_job *job,
                              uint64_t taken_ns, uint64_t now_ns, bool answered) SLUICE_MUST_USE;
/* Returns: when to call scrape_schedule_pop_due again; UINT64_MAX: never. Jobs that are due within
 * some milliseconds are taken together. */
uint64_t scrape_schedule_next_ns(const struct scrape_schedule *schedule, uint64_t now_ns);

#endif
