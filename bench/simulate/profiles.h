/* The profiles that are compared; each could be a configuration's. */
#ifndef SLUICE_BENCH_SIMULATE_PROFILES_H
#define SLUICE_BENCH_SIMULATE_PROFILES_H

#include "pick/pool/profile/profile.h"

enum { SIM_MOST_SCORERS = 4 };

struct sim_profile {
    const char *name, *title;
    bool is_default; /* the pool's own default */
    struct {
        const char *plugin;
        float weight;
    } scorers[SIM_MOST_SCORERS];
    const char *picker;
};

extern const struct sim_profile SIM_PROFILES[];
extern const size_t SIM_N_PROFILES;

/* Returns: NULL when there is none with this name. */
const struct sim_profile *sim_profile_find(const char *name);

/* The profile for a pool's spec, in `arena`; NULL for the default. Returns: as
 * plugin_read_parameters. */
enum status sim_profile_make(const struct sim_profile *profile, struct arena *arena,
                             const struct profile **out, struct error *err)
    __attribute__((warn_unused_result));

#endif
