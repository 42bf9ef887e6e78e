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

enum status plugin_read(const struct plugin *plugin, const struct doc_node *node,
                        struct arena *arena, void **parameters, struct error *err) {
    static const char *const none[] = {NULL};
    enum status st = doc_present(node) ? doc_expect_object(node, err) : ST_OK;
    *parameters = NULL;
    if (st == ST_OK && plugin->read) {
        return plugin->read(node, arena, parameters, err);
    }
    return st == ST_OK && doc_present(node) ? doc_only(node, none, err) : st;
}

void plugin_join_facts(struct choice_facts *facts, const struct choice_facts *others) {
    facts->least = others->least < facts->least ? others->least : facts->least;
    facts->greatest = others->greatest > facts->greatest ? others->greatest : facts->greatest;
    facts->sum += others->sum;
    facts->n += others->n;
}

void plugin_score_standing(const struct plugin_standing *standing, const void *parameters,
                           struct choice *choice, float weight) {
    struct choice_range all = {0, choice->n};
    struct choice_facts facts = {0};
    if (standing->gauge) {
        standing->gauge(parameters, choice, all, &facts);
    }
    if (standing->settle) {
        standing->settle(&facts);
    }
    standing->rate(parameters, choice, &facts, weight, all, choice->score);
    choice_touch_all(choice);
}
