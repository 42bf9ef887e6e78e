/* One run: a pool with a profile picks for the requests of a scenario. Pool, profiles and load
 * estimates are the product's; servers and time are simulated. */
#ifndef SLUICE_BENCH_SIMULATE_RUN_H
#define SLUICE_BENCH_SIMULATE_RUN_H

#include "profiles.h"
#include "scenario.h"

enum { SIM_MOST_SERVERS = 1000 };

struct sim_setting {
    const struct sim_scenario *scenario;
    const struct sim_profile *profile;
    uint32_t n_servers;
    uint32_t seconds; /* during which requests arrive */
    uint64_t seed;
};

/* The waiting time is from a request's arrival to its first token. The first tenth of the time is
 * left out: the servers start empty. */
struct sim_result {
    uint32_t n; /* requests counted */
    double mean_s, p99_s;
    double hits;                     /* share of the requests whose prefix was in the server's
                                        cache */
    uint32_t n_of[SIM_MOST_SERVERS]; /* requests per server */
};

/* Ends the program when out of memory. The same setting gives the same result. */
void sim_run(const struct sim_setting *setting, struct sim_result *out);

#endif
