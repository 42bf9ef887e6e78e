/* What plugins share, and the list of them. */
#include "pick/pool/profile/plugin.h"

#define PLUGIN(name) &plugin_##name,
const struct plugin *const PLUGINS[] = {
#include "pick/pool/plugins.def"
};
#undef PLUGIN

const size_t N_PLUGINS = sizeof(PLUGINS) / sizeof(PLUGINS[0]);

const struct plugin *plugin_find(struct str type) {
    for (size_t i = 0; i < N_PLUGINS; i++) {
        if (str_eq(type, str_of(PLUGINS[i]->type))) {
            return PLUGINS[i];
        }
    }
    return NULL;
}

const char *plugin_kind_name(enum plugin_kind kind) {
    static const char *const names[] = {
        [PLUGIN_FILTER] = "filter", [PLUGIN_SCORER] = "scorer", [PLUGIN_PICKER] = "picker"};
    return names[kind];
}

enum status plugin_read_parameters(const struct plugin *plugin, const struct doc_node *node,
                                   struct arena *arena, void **parameters, struct error *err) {
    static const char *const none[] = {NULL};
    enum status st = doc_is_present(node) ? doc_expect_object(node, err) : ST_OK;
    *parameters = NULL;
    if (st == ST_OK && plugin->read_parameters) {
        return plugin->read_parameters(node, arena, parameters, err);
    }
    return st == ST_OK && doc_is_present(node) ? doc_reject_unknown(node, none, err) : st;
}

void range_stats_merge(struct range_stats *stats, const struct range_stats *others) {
    stats->min = others->min < stats->min ? others->min : stats->min;
    stats->max = others->max > stats->max ? others->max : stats->max;
    stats->sum += others->sum;
    stats->n += others->n;
}

void plugin_score_cacheable(const struct plugin_cacheable *cacheable, const void *parameters,
                            struct candidate_set *candidates, float weight) {
    struct candidate_range all = {0, candidates->n};
    struct range_stats stats = {0};
    if (cacheable->collect_stats) {
        cacheable->collect_stats(parameters, candidates, all, &stats);
    }
    if (cacheable->normalize) {
        cacheable->normalize(&stats);
    }
    cacheable->score_range(parameters, candidates, &stats, weight, all, candidates->score);
    candidate_set_mark_all_modified(candidates);
}
