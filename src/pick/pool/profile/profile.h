/* A profile: the plugins that choose an endpoint. Filters run in order, then each scorer adds to
 * the scores, then the picker chooses.
 *
 * Thread: any; a profile is immutable. */
#ifndef SLUICE_PICK_POOL_PROFILE_PROFILE_H
#define SLUICE_PICK_POOL_PROFILE_PROFILE_H

#include "pick/pool/profile/plugin.h"

struct profile_step {
    const struct plugin *plugin;
    void *parameters;
    float weight;    /* of a scorer */
    struct str name; /* from the configuration; by default its type */
};

struct profile {
    struct str name;
    const struct profile_step *filters;
    size_t n_filters;
    const struct profile_step *scorers;
    size_t n_scorers;
    struct profile_step picker;
    struct pool_request_needs needs; /* of all plugins */
};

/* The profile of a pool without configuration: queue 2, KV cache 2, prompt prefix 3, own requests
 * in flight 2, highest score. It does not wait for bodies: a prompt counts where the body is read
 * for its model. */
extern const struct profile PROFILE_DEFAULT;

/* Adds it to `needs`, which several profiles share, and which has the producers. */
enum status profile_add_needs(const struct profile *profile, struct pool_request_needs *needs,
                              struct error *err) SLUICE_MUST_USE;
/* Collects what the plugins need, beginning with the producers in profile->needs; without any there
 * is the default. Returns: ST_BAD_CONFIG when the needs conflict. */
enum status profile_collect_needs(struct profile *profile, struct error *err) SLUICE_MUST_USE;

/* Whether the profile means "the fewest of our own requests in flight, ties at random": then the
 * pool's ranking has the endpoint without a loop (ranking.h). */
bool profile_is_least_requests(const struct profile *profile);

/* The number of endpoints that an answer names, where the protocol's settings say no more. */
static inline uint32_t profile_max_endpoints(const struct profile *profile) {
    const struct profile_step *step = &profile->picker;
    const struct picker_parameters *parameters =
        step->plugin->has_max_endpoints ? step->parameters : NULL;
    return parameters && parameters->max_endpoints > 1 ? parameters->max_endpoints : 1;
}

/* What an author may not expect: that some request goes to an endpoint whatever its load is, or as
 * long as the bound of affinities (plugin.h) allows. Returns: NULL when there is nothing. */
const char *profile_load_note(const struct profile *profile);

/* Filters the candidates, of which none may remain, and scores the others. */
void profile_run(const struct profile *profile, struct candidate_set *candidates);
/* The picker's choice among the scored candidates, of which there is one at least. For the next
 * best remove it (candidate_set_remove) and pass `nth` plus one. Returns: its index. */
uint32_t profile_run_picker(const struct profile *profile, const struct candidate_set *candidates,
                            uint32_t nth);

/* The steps of profile_run, for explanations; the scores are reset before the first scorer. */
void profile_reset_scores(struct candidate_set *candidates);
void profile_run_filter(const struct profile_step *step, struct candidate_set *candidates);
void profile_run_scorer(const struct profile_step *step, struct candidate_set *candidates);

#endif
