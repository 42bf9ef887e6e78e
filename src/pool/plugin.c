/* What plugins share, and the list of them. */
#include "pool/plugin.h"

#define PLUGIN(name) &plugin_##name,
const struct plugin *const PLUGINS[] = {
#include "pool/plugins.def"
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

void choice_keep(struct choice *choice, const void *parameters,
                 bool (*keep)(const void *parameters, const struct choice *choice,
                              const struct candidate *candidate)) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < choice->n; i++) {
        if (keep(parameters, choice, &choice->candidates[i])) {
            choice_swap(choice, n++, i);
        }
    }
    choice->n = n;
}

void choice_add_least(struct choice *choice, float weight) {
    uint32_t least = UINT32_MAX, greatest = 0;
    for (uint32_t i = 0; i < choice->n; i++) {
        uint32_t value = choice->candidates[i].value;
        least = value < least ? value : least;
        greatest = value > greatest ? value : greatest;
    }
    float span = greatest > least ? (float)(greatest - least) : 1;
    for (uint32_t i = 0; i < choice->n; i++) {
        struct candidate *candidate = &choice->candidates[i];
        uint32_t better = greatest > least ? greatest - candidate->value : 1;
        candidate->score += (float)better / span * weight;
    }
}
