/* The default profile, and running a profile. */
#include "pick/pool/profile/profile.h"

#include <assert.h>
#include <string.h>

#include "pick/pool/profile/plugin_times.h"
#include "pick/pool/profile/score_cache.h"

static const struct profile_step SCORERS[] = {
    {.plugin = &plugin_queue_scorer, .weight = 2, .name = STR("queue-scorer")},
    {.plugin = &plugin_kv_cache_utilization_scorer,
     .weight = 2,
     .name = STR("kv-cache-utilization-scorer")},
    {.plugin = &plugin_prefix_cache_scorer, .weight = 3, .name = STR("prefix-cache-scorer")},
    {.plugin = &plugin_active_request_scorer, .weight = 2, .name = STR("active-request-scorer")},
};

const struct profile PROFILE_DEFAULT = {
    .name = STR("default"),
    .scorers = SCORERS,
    .n_scorers = sizeof(SCORERS) / sizeof(SCORERS[0]),
    .picker = {.plugin = &plugin_max_score_picker, .name = STR("max-score-picker")},
    .needs = {.prompt = true,
              .n_prefixes = 1,
              .used_prefixes = 1,
              .prefixes = {{.name = STR("approx-prefix-cache-producer"),
                            .block_bytes = PREFIX_BLOCK_TOKENS_MIN * PROMPT_BYTES_PER_TOKEN,
                            .max_tokens = PREFIX_TOKENS_DEFAULT,
                            .capacity = PREFIX_CAPACITY_DEFAULT,
                            .auto_capacity = true,
                            .auto_block = true}}},
};

static enum status collect_needs(const struct profile_step *steps, size_t n,
                                 struct pool_request_needs *needs, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        if (steps[i].plugin->add_needs) {
            st = steps[i].plugin->add_needs(steps[i].parameters, needs, err);
        }
    }
    return st;
}

enum status profile_add_needs(const struct profile *profile, struct pool_request_needs *needs,
                              struct error *err) {
    enum status st = collect_needs(profile->filters, profile->n_filters, needs, err);
    return st == ST_OK ? collect_needs(profile->scorers, profile->n_scorers, needs, err) : st;
}

enum status profile_collect_needs(struct profile *profile, struct error *err) {
    struct pool_request_needs *needs = &profile->needs;
    if (needs->n_prefixes == 0) {
        needs->prefixes[needs->n_prefixes++] = PREFIX_PRODUCER_DEFAULT;
        needs->load = LOAD_PRODUCER_DEFAULT;
    }
    enum status st = profile_add_needs(profile, needs, err);
    pool_needs_finish(needs);
    return st;
}

bool profile_is_least_requests(const struct profile *profile) {
    return profile->n_filters == 0 && profile->n_scorers == 1 && !profile->needs.source.on &&
           profile->scorers[0].plugin == &plugin_active_request_scorer &&
           active_request_scorer_is_plain(profile->scorers[0].parameters) &&
           profile->scorers[0].weight > 0 && profile->picker.plugin == &plugin_max_score_picker &&
           profile_max_endpoints(profile) == 1;
}

static bool has_filter(const struct profile *profile, const struct plugin *plugin) {
    for (size_t i = 0; i < profile->n_filters; i++) {
        if (profile->filters[i].plugin == plugin) {
            return true;
        }
    }
    return false;
}

const char *profile_load_note(const struct profile *profile) {
    const struct plugin *picker = profile->picker.plugin;
    float load = 0, affinity = 0;
    if (has_filter(profile, &plugin_session_hash_filter)) {
        return "session-hash-filter keeps a session at its endpoint whatever the load; "
               "session-hash-scorer has a bound";
    }
    for (size_t i = 0; i < profile->n_scorers; i++) {
        const struct profile_step *step = &profile->scorers[i];
        load += step->weight * step->plugin->load_share;
        affinity += step->weight * step->plugin->affinity_share;
    }
    bool by_score = picker == &plugin_max_score_picker || picker == &plugin_power_of_two_picker;
    return by_score && affinity > 0 && affinity >= load
               ? "the scorers of affinities weigh as much as those of load, or more: load decides "
                 "only where an endpoint has a quarter more requests than the mean"
               : NULL;
}

void profile_reset_scores(struct candidate_set *candidates) {
    memset(candidates->score, 0, candidates->n * sizeof(*candidates->score));
}

void profile_run_filter(const struct profile_step *step, struct candidate_set *candidates) {
    uint32_t before = candidates->n;
    step->plugin->filter(step->parameters, candidates);
    assert(candidates->n <= before);
    (void)before;
}

void profile_run_scorer(const struct profile_step *step, struct candidate_set *candidates) {
    step->plugin->score(step->parameters, candidates, step->weight);
}

/* Twice in the program: without a clock its checks would be a fiftieth of a short pick. */
static inline __attribute__((always_inline)) void run_steps(const struct profile *profile,
                                                            struct candidate_set *candidates,
                                                            struct plugin_clock *clock) {
    for (size_t i = 0; i < profile->n_filters && candidates->n > 0; i++) {
        plugin_clock_begin(clock);
        profile_run_filter(&profile->filters[i], candidates);
        plugin_clock_end_step(clock, i);
    }
    bool is_whole = candidates->score_cache && candidates->index_of && !clock;
    if (candidates->n == 0 ||
        (is_whole && score_cache_score(candidates->score_cache, profile, candidates))) {
        return;
    }
    profile_reset_scores(candidates);
    for (size_t i = 0; i < profile->n_scorers; i++) {
        plugin_clock_begin(clock);
        profile_run_scorer(&profile->scorers[i], candidates);
        plugin_clock_end_step(clock, profile->n_filters + i);
    }
}

static __attribute__((noinline)) void run_measured(const struct profile *profile,
                                                   struct candidate_set *candidates) {
    run_steps(profile, candidates, candidates->clock);
}

void profile_run(const struct profile *profile, struct candidate_set *candidates) {
    if (candidates->clock) {
        run_measured(profile, candidates);
    } else {
        run_steps(profile, candidates, NULL);
    }
}

uint32_t profile_run_picker(const struct profile *profile, const struct candidate_set *candidates,
                            uint32_t nth) {
    const struct profile_step *step = &profile->picker;
    plugin_clock_begin(candidates->clock);
    uint32_t pos = step->plugin->pick(step->parameters, candidates, nth);
    plugin_clock_end_step(candidates->clock, profile->n_filters + profile->n_scorers);
    assert(pos < candidates->n);
    return pos;
}
