/* Replays a workload under the configuration of a guide of llm-d, of which the picker reads the
 * very text: picked by the product's pool, or by upstream's algorithm (rival.h), on the same
 * simulated engines. */
#ifndef SLUICE_BENCH_SIMULATE_REPLAY_H
#define SLUICE_BENCH_SIMULATE_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "workload.h"

enum sim_chooser { CHOOSER_OURS, CHOOSER_UPSTREAMS, N_CHOOSERS };

/* The guides that are replayed; of a guide with several configurations the first. Ends with
 * NULL. */
extern const char *const SIM_GUIDES[];
/* Where their configurations are, in the repository. */
extern const char SIM_GUIDES_PATH[];

enum { REPLAY_SERVERS = 8 }; /* with stages half of them prefill */

struct sim_replay_setting {
    const char *guide;
    enum sim_workload_kind workload;
    double size; /* sim_workload_make */
    enum sim_chooser chooser;
    uint64_t seed;
};

/* Times are from a request's arrival to its first token, in seconds. */
struct sim_replay_result {
    uint32_t n, n_refused; /* requests, and those of them that were refused */
    double hits;           /* share of the tokens of prompts that were not computed */
    double mean_s, p50_s, p90_s, p99_s;
    double ends_s; /* when the last answer has ended */
    double spread; /* the most requests that an engine got, as a multiple of their mean: of those
                      that compute prompts */
    uint32_t n_of[REPLAY_SERVERS];
    bool is_clean; /* all counts of the picker are 0 at the end */
};

/* Ends the program when out of memory, or when the configuration is refused. The same setting gives
 * the same result. Runs in the repository's root. */
void sim_replay_run(const struct sim_replay_setting *setting, struct sim_replay_result *out);

#endif
