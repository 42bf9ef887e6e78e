/* Running a profile. */
#include "pick/pool/profile/profile.h"

#include <assert.h>
#include <string.h>

#include "pick/pool/profile/standing_sums.h"

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
    .wants = {.prompt = true,
              .blocks = PREFIX_BLOCKS_DEFAULT,
              .capacity = PREFIX_CAPACITY_DEFAULT,
              .auto_capacity = true},
};

static enum status gather(const struct profile_step *steps, size_t n, struct pool_wants *wants,
                          struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        if (steps[i].plugin->want) {
            st = steps[i].plugin->want(steps[i].parameters, wants, err);
        }
    }
    return st;
}

enum status profile_gather_wants(struct profile *profile, struct error *err) {
    struct pool_wants *wants = &profile->wants;
    *wants = PROFILE_DEFAULT.wants;
    wants->prompt = false;
    enum status st = gather(profile->filters, profile->n_filters, wants, err);
    if (st == ST_OK) {
        st = gather(profile->scorers, profile->n_scorers, wants, err);
    }
    return st;
}

bool profile_is_fewest(const struct profile *profile) {
    return profile->n_filters == 0 && profile->n_scorers == 1 &&
           profile->scorers[0].plugin == &plugin_active_request_scorer &&
           profile->scorers[0].weight > 0 && profile->picker.plugin == &plugin_max_score_picker;
}

void profile_clear(struct choice *choice) {
    memset(choice->score, 0, choice->n * sizeof(*choice->score));
}

void profile_filter(const struct profile_step *step, struct choice *choice) {
    uint32_t before = choice->n;
    step->plugin->filter(step->parameters, choice);
    assert(choice->n <= before);
    (void)before;
}

void profile_score(const struct profile_step *step, struct choice *choice) {
    step->plugin->score(step->parameters, choice, step->weight);
}

void profile_judge(const struct profile *profile, struct choice *choice) {
    for (size_t i = 0; i < profile->n_filters && choice->n > 0; i++) {
        profile_filter(&profile->filters[i], choice);
    }
    bool is_whole = choice->standing && choice->place_of;
    if (choice->n == 0 || (is_whole && standing_sums_score(choice->standing, profile, choice))) {
        return;
    }
    profile_clear(choice);
    for (size_t i = 0; i < profile->n_scorers; i++) {
        profile_score(&profile->scorers[i], choice);
    }
}

uint32_t profile_pick(const struct profile *profile, const struct choice *choice, uint32_t nth) {
    const struct profile_step *step = &profile->picker;
    uint32_t place = step->plugin->pick(step->parameters, choice, nth);
    assert(place < choice->n);
    return place;
}
