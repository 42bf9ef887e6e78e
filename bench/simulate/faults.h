/* Pools whose servers, clients or load misbehave, in simulated time: the share of the good requests
 * that is answered, how fast, and for how long capacity is missing afterwards. */
#ifndef SLUICE_BENCH_SIMULATE_FAULTS_H
#define SLUICE_BENCH_SIMULATE_FAULTS_H

#include "pick/pool/pool.h"
#include "profiles.h"

/* How a faulty server treats requests while the fault lasts. */
enum sim_fault {
    SIM_NO_FAULT,
    SIM_FAILS,       /* answers each at once, with `status` */
    SIM_HANGS,       /* accepts and never answers; its metrics page says that it is idle */
    SIM_IS_SLOW,     /* takes ten times as long */
    SIM_WARMS_UP,    /* fails for the first second, then takes eight times as long at first */
    SIM_LACKS_MODEL, /* answers one request of five, for one model, with `status` */
    SIM_DEAD_PAGE,   /* serves, but its metrics page cannot be read */
};

struct sim_fault_scenario {
    const char *name, *title;
    enum sim_fault fault;
    const char *status; /* HTTP; "": no response */
    bool everywhere;    /* all servers are faulty; otherwise the first one, */
    double share;       /* or so many of them, rounded down */
    uint32_t from_ms, until_ms;
    uint32_t hang_ms;   /* a request that hangs is given up after so long; 0: 2 s */
    double load;        /* of good requests, a share of the servers' capacity */
    double burst;       /* the same while the fault lasts; 0: no burst */
    double poison;      /* requests of one client while the fault lasts, per good request: they
                           fail everywhere, */
    bool by_many;       /* of a new client each */
    bool flood;         /* or take as long as others, and have the lowest priority; the picker has
                           flow control */
    uint32_t shed_from; /* servers answer 503 when so many requests wait; 0: never */
    uint32_t n_retries; /* of a good request that failed, after 20, 40, … ms */
    bool hot_prefix;    /* while the fault lasts all prompts begin alike, and are of one session */
    bool scraped;       /* metrics pages are scraped */
    const char *profile;
    const struct profile *made_profile; /* instead of `profile`; outlives the run */
};

extern const struct sim_fault_scenario SIM_FAULT_SCENARIOS[];
extern const size_t SIM_N_FAULT_SCENARIOS;
const struct sim_fault_scenario *sim_fault_scenario_find(const char *name);

enum sim_judge {
    SIM_JUDGE_POOL,   /* the picker's */
    SIM_JUDGE_ORACLE, /* knows which servers are faulty, and picks the least loaded of the others */
    SIM_JUDGE_LLM_D,  /* llm-d's default, as its chart configures it: queue-scorer 2,
                         kv-cache-utilization-scorer 2 and prefix-cache-scorer 3, the highest sum;
                         of pages scraped every 50 ms, the default of --refresh-metrics-interval;
                         no server is ejected */
    SIM_JUDGE_ENVOY,  /* the fewest requests in flight with Envoy's outlier detection and its
                         defaults: five 5xx in a row, 30 s, at most a tenth of the servers */
    SIM_N_JUDGES,
};

struct sim_fault_result {
    uint32_t n, n_good;  /* good requests: all, and those answered */
    double p99_s;        /* of those answered */
    double back_s;       /* from the end of the fault until all servers are used without a limit */
    uint32_t n_of_first; /* good requests that were sent to the first server during the fault */
};

enum { SIM_MOST_FAULT_SERVERS = 200 };

/* The same arguments give the same result. */
void sim_faults_run(const struct sim_fault_scenario *scenario, enum sim_judge judge,
                    uint32_t n_servers, uint64_t seed, struct sim_fault_result *out);

#endif
