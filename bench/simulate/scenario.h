/* Scenarios: when requests arrive, the lengths of prompts and responses, and shared prefixes. */
#ifndef SLUICE_BENCH_SIMULATE_SCENARIO_H
#define SLUICE_BENCH_SIMULATE_SCENARIO_H

#include "server.h"

struct sim_scenario {
    const char *name, *title;
    double in_bursts;             /* share of the requests that arrive in bursts, every 2 s */
    double long_share;            /* share of long prompts */
    uint32_t prefixes_per_server; /* shared prefixes; 0: none */
    uint32_t n_slow;              /* servers with a quarter of the others' speed */
};

extern const struct sim_scenario SIM_SCENARIOS[];
extern const size_t SIM_N_SCENARIOS;

/* Returns: NULL when there is none with this name. */
const struct sim_scenario *sim_scenario_find(const char *name);

/* The requests of so many seconds in order of arrival; none in the first second. Returns: their
 * number, at `*out`; 0: out of memory. Owns: `*out`, for free(). */
uint32_t sim_scenario_requests(const struct sim_scenario *scenario, uint32_t n_servers,
                               uint32_t seconds, uint64_t seed, struct sim_request **out);

#endif
