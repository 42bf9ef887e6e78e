/* What the servers are asked: when requests arrive, how long their prompts and answers are, and
 * which prompts begin alike. */
#ifndef SLUICE_BENCH_SIMULATE_SCENARIO_H
#define SLUICE_BENCH_SIMULATE_SCENARIO_H

#include "server.h"

struct sim_scenario {
    const char *name, *title;
    double in_bursts;             /* the share of the requests that come all at once, each 2 s */
    double long_share;            /* of the prompts, that are long */
    uint32_t prefixes_per_server; /* beginnings that prompts share; 0: none do */
    uint32_t n_slow;              /* servers that work at a quarter of the others' speed */
};

extern const struct sim_scenario SIM_SCENARIOS[];
extern const size_t SIM_N_SCENARIOS;

/* NULL: there is none of this name. */
const struct sim_scenario *sim_scenario_find(const char *name);

/* The requests of so many seconds, in the order in which they arrive; the first second is empty.
 * Returns: how many, at `*out`; 0: no memory. Owns: `*out`, for free(). */
uint32_t sim_scenario_requests(const struct sim_scenario *scenario, uint32_t n_servers,
                               uint32_t seconds, uint64_t seed, struct sim_request **out);

#endif
