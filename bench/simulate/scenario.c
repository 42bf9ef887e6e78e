/* Random requests. The rate is three quarters of the servers' throughput with all slots busy. */
#include "scenario.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "events.h"

enum { RATE_PER_SERVER = 14, BURST_EVERY_S = 2, BURST_MS = 20 };

static const uint64_t SECOND_NS = 1000000000, MS_NS = 1000000;

const struct sim_scenario SIM_SCENARIOS[] = {
    {.name = "even", .title = "all alike"},
    {.name = "bursts", .title = "half of them in bursts", .in_bursts = 0.5},
    {.name = "lengths", .title = "one prompt in ten long", .long_share = 0.1},
    {.name = "prefixes", .title = "prompts begin alike", .prefixes_per_server = 3},
    {.name = "slow", .title = "one server is slow", .n_slow = 1},
};

const size_t SIM_N_SCENARIOS = sizeof(SIM_SCENARIOS) / sizeof(*SIM_SCENARIOS);

const struct sim_scenario *sim_scenario_find(const char *name) {
    return sim_find(SIM_SCENARIOS, SIM_N_SCENARIOS, sizeof(*SIM_SCENARIOS), name);
}

/* ---- random numbers -------------------------------------------------------------------------- */

static uint32_t roll_between(struct prng *prng, uint32_t least, uint32_t most) {
    return least + prng_below(prng, most - least + 1);
}

static double roll_exponential(struct prng *prng, double mean) {
    return -log(1 - prng_double(prng)) * mean;
}

/* Zipf: the n-th has 1/n of the first one's probability; the sum of the first k terms is about
 * log(k + 1). */
static uint32_t roll_popular(struct prng *prng, uint32_t n) {
    double x = exp(prng_double(prng) * log((double)n + 1));
    uint32_t i = (uint32_t)x;
    return i < 1 ? 1 : i > n ? n : i;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void roll_request(const struct sim_scenario *scenario, uint32_t n_servers, struct prng *prng,
                         struct sim_request *out) {
    double n_answer = 1 + roll_exponential(prng, 100);
    out->n_answer = n_answer < 800 ? (uint32_t)n_answer : 800;
    if (scenario->prefixes_per_server > 0) {
        out->prefix = roll_popular(prng, scenario->prefixes_per_server * n_servers);
        out->n_prefix = 1000;
        out->n_prompt = out->n_prefix + roll_between(prng, 100, 300);
    } else if (scenario->long_share > 0) {
        bool is_long = prng_double(prng) < scenario->long_share;
        out->n_prompt = is_long ? roll_between(prng, 4000, 8000) : roll_between(prng, 100, 500);
    } else {
        out->n_prompt = roll_between(prng, 400, 1200);
    }
}

/* In a burst, or at a random time. */
static uint64_t roll_arrival(const struct sim_scenario *scenario, uint32_t seconds,
                             struct prng *prng) {
    uint64_t begin_ns = SECOND_NS;
    if (prng_double(prng) < scenario->in_bursts) {
        uint64_t burst = prng_below(prng, seconds / BURST_EVERY_S);
        return begin_ns + burst * BURST_EVERY_S * SECOND_NS + prng_next(prng) % (BURST_MS * MS_NS);
    }
    return begin_ns + prng_next(prng) % (seconds * SECOND_NS);
}

static int compare_arrivals(const void *a, const void *b) {
    const struct sim_request *left = a, *right = b;
    return left->arrives_ns < right->arrives_ns ? -1 : left->arrives_ns > right->arrives_ns;
}

uint32_t sim_scenario_requests(const struct sim_scenario *scenario, uint32_t n_servers,
                               uint32_t seconds, uint64_t seed, struct sim_request **out) {
    uint32_t n = RATE_PER_SERVER * n_servers * seconds;
    struct sim_request *requests = calloc(n, sizeof(*requests));
    struct prng prng = {seed};
    *out = requests;
    if (!requests) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        requests[i].arrives_ns = roll_arrival(scenario, seconds, &prng);
    }
    qsort(requests, n, sizeof(*requests), compare_arrivals);
    for (uint32_t i = 0; i < n; i++) {
        roll_request(scenario, n_servers, &prng, &requests[i]);
    }
    return n;
}
