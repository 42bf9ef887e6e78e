/* A profile: how an endpoint is chosen, as a list of plugins. Filters run in their order, then each
 * scorer adds to the sums, then the picker chooses.
 *
 * Thread: any; a profile does not change. */
#ifndef SLUICE_PICK_POOL_PROFILE_PROFILE_H
#define SLUICE_PICK_POOL_PROFILE_PROFILE_H

#include "pick/pool/profile/plugin.h"

struct profile_step {
    const struct plugin *plugin;
    void *parameters;
    float weight;    /* a scorer's */
    struct str name; /* as the configuration calls it; its type, unless it says otherwise */
};

struct profile {
    struct str name;
    const struct profile_step *filters;
    size_t n_filters;
    const struct profile_step *scorers;
    size_t n_scorers;
    struct profile_step picker;
    struct pool_request_needs needs; /* of all of them */
};

/* What holds where the configuration says nothing: queue 2, KV cache 2, how prompts begin 3, own
 * requests in flight 2, the best of all. Bodies are not asked for: a prompt counts where the body
 * is looked into for its model. */
extern const struct profile PROFILE_DEFAULT;

/* Fills in what its plugins want. Returns: ST_BAD_CONFIG where that does not go together. */
enum status profile_collect_needs(struct profile *profile, struct error *err)
    __attribute__((warn_unused_result));

/* Does it only say "the fewest of our own requests in flight, ties at random"? Then the pool knows
 * it without looking at any endpoint (ranking.h). */
bool profile_is_least_requests(const struct profile *profile);

/* Filters the candidates, of which none may be left, and scores those that are. */
void profile_run(const struct profile *profile, struct candidate_set *candidates);
/* The picker's choice of those that were judged, of which there is one at least; for its next best,
 * with `nth` one more, that one is dropped (candidate_set_remove). Returns: its place. */
uint32_t profile_run_picker(const struct profile *profile, const struct candidate_set *candidates,
                            uint32_t nth);

/* Parts of judging, for who wants to know what each does; sums are made 0 before the first
 * scorer. */
void profile_reset_scores(struct candidate_set *candidates);
void profile_run_filter(const struct profile_step *step, struct candidate_set *candidates);
void profile_run_scorer(const struct profile_step *step, struct candidate_set *candidates);

#endif
