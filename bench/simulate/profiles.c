/* The compared profiles, made of the pool's plugins without parameters. */
#include "profiles.h"

#include "events.h"

const struct sim_profile SIM_PROFILES[] = {
    {.name = "default", .title = "default", .is_default = true},
    {.name = "no-prefix",
     .title = "default, prompts unseen",
     .scorers = {{"queue-scorer", 2},
                 {"kv-cache-utilization-scorer", 2},
                 {"active-request-scorer", 2}},
     .picker = "max-score-picker"},
    {.name = "latency",
     .title = "default, times of answers",
     .scorers = {{"queue-scorer", 2},
                 {"kv-cache-utilization-scorer", 2},
                 {"active-request-scorer", 2},
                 {"measured-latency-scorer", 1}},
     .picker = "max-score-picker"},
    {.name = "prefix",
     .title = "prefix cache only",
     .scorers = {{"prefix-cache-scorer", 1}},
     .picker = "max-score-picker"},
    {.name = "queue",
     .title = "queue only",
     .scorers = {{"queue-scorer", 1}},
     .picker = "max-score-picker"},
    {.name = "kv",
     .title = "KV cache only",
     .scorers = {{"kv-cache-utilization-scorer", 1}},
     .picker = "max-score-picker"},
    {.name = "fewest",
     .title = "fewest in flight",
     .scorers = {{"active-request-scorer", 1}},
     .picker = "max-score-picker"},
    {.name = "two",
     .title = "power of two choices",
     .scorers = {{"queue-scorer", 2},
                 {"kv-cache-utilization-scorer", 2},
                 {"active-request-scorer", 2}},
     .picker = "power-of-two-picker"},
    {.name = "round-robin", .title = "round robin", .picker = "round-robin-picker"},
    {.name = "random", .title = "random", .picker = "random-picker"},
};

/* Of faults.h only. */
static const struct sim_profile OTHERS[] = {
    {.name = "upstream",
     .title = "llm-d's",
     .scorers = {{"queue-scorer", 2},
                 {"kv-cache-utilization-scorer", 2},
                 {"prefix-cache-scorer", 3}},
     .picker = "max-score-picker"},
    {.name = "prompt-first",
     .title = "the prompt outweighs the queue",
     .scorers = {{"prefix-cache-scorer", 3}, {"queue-scorer", 2}},
     .picker = "max-score-picker"},
};

const size_t SIM_N_PROFILES = sizeof(SIM_PROFILES) / sizeof(*SIM_PROFILES);

const struct sim_profile *sim_profile_find(const char *name) {
    const struct sim_profile *found =
        sim_find(SIM_PROFILES, SIM_N_PROFILES, sizeof(*SIM_PROFILES), name);
    return found ? found
                 : sim_find(OTHERS, sizeof(OTHERS) / sizeof(*OTHERS), sizeof(*OTHERS), name);
}

static enum status make_step(const char *type, float weight, const struct doc_node *node,
                             struct arena *arena, struct profile_step *out, struct error *err) {
    *out = (struct profile_step){
        .plugin = plugin_find(str_of(type)), .weight = weight, .name = str_of(type)};
    return plugin_read_parameters(out->plugin, node, arena, &out->parameters, err);
}

static enum status make_profile(const struct sim_profile *profile, const struct doc_node *node,
                                struct arena *arena, struct profile *out, struct error *err) {
    struct profile_step *scorers = arena_calloc(arena, SIM_MOST_SCORERS, sizeof(*scorers));
    enum status st = make_step(profile->picker, 0, node, arena, &out->picker, err);
    out->name = str_of(profile->name);
    out->scorers = scorers;
    for (size_t i = 0; st == ST_OK && i < SIM_MOST_SCORERS && profile->scorers[i].plugin; i++) {
        st = make_step(profile->scorers[i].plugin, profile->scorers[i].weight, node, arena,
                       &scorers[out->n_scorers++], err);
    }
    return st == ST_OK ? profile_collect_needs(out, err) : st;
}

enum status sim_profile_make(const struct sim_profile *profile, struct arena *arena,
                             const struct profile **out, struct error *err) {
    struct doc *nothing;
    struct profile *made = arena_calloc(arena, 1, sizeof(*made));
    *out = profile->is_default ? NULL : made;
    if (profile->is_default) {
        return ST_OK;
    }
    enum status st = doc_parse(DOC_YAML, "simulate", STR("{}"), &nothing, err);
    if (st != ST_OK) {
        return st;
    }
    struct doc_node node = doc_root(nothing);
    st = make_profile(profile, &node, arena, made, err);
    doc_free(nothing);
    return st;
}
