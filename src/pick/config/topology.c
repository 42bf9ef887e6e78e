/* Upstream's extractor sets an attribute of each endpoint, which other plugins read by the
 * extractor's name. Here these plugins read the labels themselves. */
#include "pick/config/topology.h"

#include "pick/pool/profile/plugin.h"

static const char EXTRACTOR[] = "topology-extractor";

#define KEY(level) MEMBER_TEXT(struct topology_labels, keys[level]), .form = "the key of a label"

const struct doc_member PICKER_TOPOLOGY[] = {
    {"hostname", KEY(TOPOLOGY_HOST), .help = "by default kubernetes.io/hostname"},
    {"rack", KEY(TOPOLOGY_RACK), .help = "by default topology.kubernetes.io/rack"},
    {"zone", KEY(TOPOLOGY_ZONE), .help = "by default topology.kubernetes.io/zone"},
    {"region", KEY(TOPOLOGY_REGION), .help = "by default topology.kubernetes.io/region"},
    {0}};

static void resolve(struct doc_reader *reader, const struct plugin_list *list,
                    const struct declared_plugin *plugin) {
    static const struct topology_labels presets = {
        {STR("kubernetes.io/hostname"), STR("topology.kubernetes.io/rack"),
         STR("topology.kubernetes.io/zone"), STR("topology.kubernetes.io/region")}};
    struct topology_user *user = plugin->settings;
    struct str name = user->producer.len > 0 ? user->producer : str_of(EXTRACTOR);
    const struct declared_plugin *extractor = plugin_list_find(list, name);
    if (!extractor || !extractor->type || extractor->type->kind != PICKER_PLUGIN_TOPOLOGY ||
        !extractor->settings) {
        pool_config_add_note(reader, &plugin->item,
                             "no topology-extractor has the name: the places of endpoints are "
                             "unknown");
        return;
    }
    const struct topology_labels *labels = extractor->settings;
    for (int i = 0; i < N_TOPOLOGY_LEVELS; i++) {
        user->labels.keys[i] = labels->keys[i].len > 0 ? labels->keys[i] : presets.keys[i];
    }
}

void picker_resolve_topology(struct doc_reader *reader, const struct plugin_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *plugin = &list->items[i];
        if (plugin->settings && (plugin->plugin == &plugin_topology_affinity_filter ||
                                 plugin->plugin == &plugin_topology_affinity_scorer)) {
            resolve(reader, list, plugin);
        }
    }
}
