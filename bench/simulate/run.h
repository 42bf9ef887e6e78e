/* One run: a pool with a profile chooses for the requests of a scenario. The pool, its profiles and
 * the way in which it learns of loads are the product's; servers and time are not there. */
#ifndef SLUICE_BENCH_SIMULATE_RUN_H
#define SLUICE_BENCH_SIMULATE_RUN_H

#include "profiles.h"
#include "scenario.h"

enum { SIM_MOST_SERVERS = 1000 };

struct sim_setting {
    const struct sim_scenario *scenario;
    const struct sim_profile *profile;
    uint32_t n_servers;
    uint32_t seconds; /* in which requests arrive */
    uint64_t seed;
};

/* The waiting time is that from a request's arrival to the first token of its answer. Those of the
 * first tenth of the time do not count: the servers were empty. */
struct sim_result {
    uint32_t n; /* that count */
    double mean_s, p99_s;
    double hits;                     /* the share of requests whose prefix was in the cache */
    uint32_t n_of[SIM_MOST_SERVERS]; /* requests of each server */
};

/* Ends the program when there is no memory. The same setting has the same result. */
void sim_run(const struct sim_setting *setting, struct sim_result *out);

#endif
