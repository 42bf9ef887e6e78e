/* Plugins and the profile that they make up, as our own format (`profile`) and upstream's
 * EndpointPickerConfig have them: the same members in both. Upstream's also declares plugins that
 * are not steps of a profile; picker_config.c reads what refers to them. */
#include "pick/config/profile_handler.h"

#include "core/base/buf.h"
#include "core/base/suggest.h"
#include "pick/config/producers.h"
#include "pick/config/topology.h"
#include "pick/pool/profile/session_token.h"
#include "pick/pool/rollout.h"

enum { MOST_WEIGHT = 1000000 };

/* For the conformance tests of gateways: enables the protocol's `served_header`. */
static const char VERIFIER[] = "destination-endpoint-served-verifier";

struct profile_reader {
    struct pool_config_reader *reader;
    struct doc_reader *doc; /* its own */
    bool upstream;          /* the document is an EndpointPickerConfig */
    struct plugin_list *plugins;
    struct profile *profile;
    struct profile_step *filters, *scorers;
};

/* ---- upstream's types ------------------------------------------------------------------------ */

static const struct picker_plugin_type PICKER_PLUGIN_TYPES[] = {
#define BY_READER NULL, 0
#define TABLE(type, table) (table), sizeof(type)
#define PICKER_PLUGIN(type, kind, parameters, note)                                                \
    {(type), PICKER_PLUGIN_##kind, (note), parameters},
#include "pick/config/picker_plugin_type.def"
#undef PICKER_PLUGIN
#undef TABLE
#undef BY_READER
};

static const size_t N_PICKER_PLUGIN_TYPES =
    sizeof(PICKER_PLUGIN_TYPES) / sizeof(PICKER_PLUGIN_TYPES[0]);

const struct picker_plugin_type *picker_plugin_type_find(struct str type) {
    for (size_t i = 0; i < N_PICKER_PLUGIN_TYPES; i++) {
        if (str_is(type, PICKER_PLUGIN_TYPES[i].type)) {
            return &PICKER_PLUGIN_TYPES[i];
        }
    }
    return NULL;
}

struct str picker_plugin_types_of_kind(struct arena *arena, enum picker_plugin_kind kind) {
    struct buf names;
    buf_init(&names, arena, 0);
    for (size_t i = 0; i < N_PICKER_PLUGIN_TYPES; i++) {
        if (PICKER_PLUGIN_TYPES[i].kind == kind) {
            buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", PICKER_PLUGIN_TYPES[i].type);
        }
    }
    return buf_str(&names);
}

/* Beside the steps. */
static bool is_of_profiles(enum picker_plugin_kind kind) {
    return kind == PICKER_PLUGIN_HANDLER || kind == PICKER_PLUGIN_PROFILE_HANDLER ||
           kind == PICKER_PLUGIN_DECIDER || kind == PICKER_PLUGIN_TOPOLOGY;
}

/* ---- plugins of a profile -------------------------------------------------------------------- */

/* Suggests the type that was probably meant, or else lists the types of the kind that the name ends
 * with. */
static void unknown_type(const struct profile_reader *self, const struct doc_node *node,
                         struct str type) {
    struct suggestion suggestion = {0};
    char hint[SUGGEST_HINT_BYTES];
    struct buf names;
    buf_init(&names, self->reader->arena, 0);
    for (size_t i = 0; i < N_PLUGINS; i++) {
        suggest_consider(&suggestion, type, str_of(PLUGINS[i]->type));
        if (str_ends_with(type, str_of(plugin_kind_name(PLUGINS[i]->kind)))) {
            buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", PLUGINS[i]->type);
        }
    }
    for (size_t i = 0; self->upstream && i < N_PICKER_PLUGIN_TYPES; i++) {
        suggest_consider(&suggestion, type, str_of(PICKER_PLUGIN_TYPES[i].type));
    }
    if (!suggestion.best.ptr && names.len > 0) {
        struct str text = buf_str(&names);
        doc_reader_fail(self->doc, node, "no plugin is called \"%.*s\"; there are %.*s",
                        STR_ARG(type), STR_ARG(text));
    }
    doc_reader_fail(self->doc, node, "no plugin is called \"%.*s\"%s", STR_ARG(type),
                    suggestion.best.ptr ? suggest_hint(&suggestion, hint)
                                        : "; their names end in -filter, -scorer or -picker");
}

const struct declared_plugin *plugin_list_find(const struct plugin_list *list, struct str name) {
    for (size_t i = 0; i < list->n; i++) {
        if (str_eq(list->items[i].name, name)) {
            return &list->items[i];
        }
    }
    return NULL;
}

static const struct doc_member PLUGIN_ITEM[] = {
    {"name", MEMBER_BY_CALLER}, {"type", MEMBER_BY_CALLER}, {"parameters", MEMBER_BY_CALLER}, {0}};

/* The rows are checked also where the plugin is given without parameters. */
static void read_type_parameters(struct doc_reader *reader, struct declared_plugin *plugin) {
    const struct picker_plugin_type *type = plugin->type;
    plugin->settings = doc_reader_calloc(reader, 1, type->parameters_size);
    if (!plugin->settings) {
        return;
    }
    doc_reader_presets(type->parameters, plugin->settings);
    if (doc_is_present(&plugin->parameters)) {
        doc_reader_object(reader, &plugin->parameters, type->parameters, plugin->settings);
    } else {
        doc_reader_members(reader, &plugin->parameters, type->parameters, plugin->settings);
    }
}

/* Reads plugins->items[n]. */
static void read_plugin(struct profile_reader *self, const struct doc_node *node) {
    struct plugin_list *list = self->plugins;
    struct declared_plugin *plugin = &list->items[list->n];
    plugin->item = *node;
    plugin->parameters = doc_get(&plugin->item, "parameters");
    struct doc_node type = doc_get(node, "type"), name = doc_get(node, "name");
    struct str text = {NULL, 0};
    doc_reader_object(self->doc, node, PLUGIN_ITEM, NULL);
    pool_config_read_name(self->doc, &type, &text);
    pool_config_read_name(self->doc, doc_is_present(&name) ? &name : &type, &plugin->name);
    if (doc_reader_ok(self->doc) && plugin_list_find(list, plugin->name)) {
        doc_reader_fail(self->doc, node, "the plugin \"%.*s\" is there twice",
                        STR_ARG(plugin->name));
    }
    if (!doc_reader_ok(self->doc)) {
        return;
    }
    plugin->type = picker_plugin_type_find(text);
    plugin->plugin = plugin_find(text);
    self->reader->spec->protocol.send_served_header |= str_is(text, VERIFIER);
    bool refused = plugin->type && plugin->type->kind == PICKER_PLUGIN_REFUSED;
    bool known =
        plugin->plugin || (plugin->type && (self->upstream || is_of_profiles(plugin->type->kind)));
    plugin->is_unknown = refused || !known;
    list->n++;
    if (refused) {
        doc_reader_fail(self->doc, &type, "\"%.*s\" is not supported: %s", STR_ARG(text),
                        plugin->type->note);
    } else if (!known) {
        unknown_type(self, &type, text);
    } else if (plugin->plugin) {
        plugin_read(plugin->plugin, self->doc, &plugin->parameters, &plugin->settings);
    } else if (plugin->type->parameters) {
        read_type_parameters(self->doc, plugin);
    }
}

/* Returns: whether the list may be read. */
static bool check_plugin_count(struct doc_reader *reader, const struct doc_node *list) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    bool fits = n > 0 && n <= MOST_PLUGINS;
    if (!fits) {
        doc_reader_fail(reader, list, "expected 1 to %d plugins, got %zu", MOST_PLUGINS, n);
    }
    return fits;
}

/* ---- the profile ----------------------------------------------------------------------------- */

/* Steps are in the order of the file. */
static void add_step(struct profile_reader *self, const struct declared_plugin *declared,
                     float weight, const struct doc_node *node) {
    struct profile *profile = self->profile;
    struct profile_step step = {declared->plugin, declared->settings, weight, declared->name};
    if (!step.plugin) {
        if (!is_of_profiles(declared->type->kind) &&
            declared->type->kind != PICKER_PLUGIN_PRODUCER &&
            declared->type->kind != PICKER_PLUGIN_REQUEST &&
            declared->type->kind != PICKER_PLUGIN_PARSER) {
            doc_reader_fail(self->doc, node, "\"%.*s\" has no place in a profile",
                            STR_ARG(declared->name));
        }
        return;
    }
    self->plugins->items[declared - self->plugins->items].is_step = true;
    switch (step.plugin->kind) {
    case PLUGIN_FILTER:
        self->filters[profile->n_filters++] = step;
        break;
    case PLUGIN_SCORER:
        if (step.plugin->filter) {
            self->filters[profile->n_filters++] = step;
        }
        self->scorers[profile->n_scorers++] = step;
        break;
    case PLUGIN_PICKER:
        if (profile->picker.plugin) {
            doc_reader_fail(self->doc, node, "expected one picker, got \"%.*s\" and \"%.*s\"",
                            STR_ARG(profile->picker.name), STR_ARG(step.name));
        }
        profile->picker = step;
        break;
    }
}

static void read_weight(struct doc_reader *reader, const struct doc_node *node,
                        const struct declared_plugin *declared, float *out) {
    double weight = 1;
    doc_reader_f64(reader, node, &weight);
    if (!(weight >= 0 && weight <= MOST_WEIGHT)) {
        doc_reader_fail(reader, node, "expected a weight from 0 to %d", MOST_WEIGHT);
    }
    if (node->val && declared->plugin && declared->plugin->kind != PLUGIN_SCORER) {
        doc_reader_fail(reader, node, "\"%.*s\" is a %s; only scorers have weights",
                        STR_ARG(declared->name), plugin_kind_name(declared->plugin->kind));
    }
    *out = (float)weight;
}

static void read_plugin_ref(struct profile_reader *self, const struct doc_node *node) {
    static const struct doc_member members[] = {
        {"pluginRef", MEMBER_BY_CALLER}, {"weight", MEMBER_BY_CALLER}, {0}};
    struct doc_node ref = doc_get(node, "pluginRef"), weight_node = doc_get(node, "weight");
    struct str name = {NULL, 0};
    float weight;
    doc_reader_object(self->doc, node, members, NULL);
    pool_config_read_name(self->doc, &ref, &name);
    if (!doc_reader_ok(self->doc)) {
        return;
    }
    const struct declared_plugin *declared = plugin_list_find(self->plugins, name);
    if (!declared) {
        struct suggestion suggestion = {0};
        char hint[SUGGEST_HINT_BYTES];
        for (size_t i = 0; i < self->plugins->n; i++) {
            suggest_consider(&suggestion, name, self->plugins->items[i].name);
        }
        doc_reader_fail(self->doc, &ref, "no plugin above has the name \"%.*s\"%s", STR_ARG(name),
                        suggest_hint(&suggestion, hint));
        return;
    }
    if (declared->is_unknown) {
        return;
    }
    read_weight(self->doc, &weight_node, declared, &weight);
    add_step(self, declared, weight, node);
}

static void read_plugin_refs(struct profile_reader *self, const struct doc_node *node) {
    static const struct doc_member members[] = {
        {"name", MEMBER_CUSTOM_FIELD(struct profile, name, struct str, pool_config_read_name)},
        {"plugins", MEMBER_BY_CALLER},
        {0}};
    struct doc_node list = doc_get(node, "plugins");
    doc_reader_object(self->doc, node, members, self->profile);
    bool fits = check_plugin_count(self->doc, &list);
    for (struct doc_node item = {0}; fits && doc_reader_next_part(self->doc, &list, &item);) {
        enum status before = doc_reader_begin_part(self->doc);
        read_plugin_ref(self, &item);
        doc_reader_end_part(self->doc, before);
    }
}

/* A session is bound to the endpoint of a profile that there is. */
static void check_session_profiles(struct profile_reader *self, const struct profile *profiles,
                                   size_t n) {
    for (size_t i = 0; i < self->plugins->n; i++) {
        const struct declared_plugin *plugin = &self->plugins->items[i];
        const struct session_parameters *parameters = plugin->settings;
        bool binds = parameters && (plugin->plugin == &plugin_session_affinity_filter ||
                                    plugin->plugin == &plugin_session_affinity_scorer);
        size_t k = 0;
        while (binds && k < n && !str_eq(profiles[k].name, parameters->id.profile)) {
            k++;
        }
        if (binds && parameters->id.profile.len > 0 && k == n) {
            struct doc_node node = doc_get(&plugin->parameters, "profileName");
            doc_reader_fail(self->doc, &node, "no profile is called \"%.*s\"",
                            STR_ARG(parameters->id.profile));
        }
    }
}

/* Completes the profiles and sets the spec's, if there was no error. */
static void end_profiles(struct profile_reader *self, struct profile *profiles, size_t n,
                         const struct doc_node *node) {
    struct pool_spec *spec = self->reader->spec;
    struct error why = {.status = ST_OK};
    for (size_t i = 0; i < n; i++) {
        if (!profiles[i].picker.plugin) {
            profiles[i].picker = PROFILE_DEFAULT.picker;
        }
    }
    if (doc_reader_ok(self->doc)) {
        /* Upstream has a token-producer wherever it needs one. */
        profiles->needs.estimate = self->upstream ? &MEDIA_ESTIMATE_DEFAULT : NULL;
        picker_declare_producers(self->doc, self->plugins, &profiles->needs);
        check_session_profiles(self, profiles, n);
    }
    struct profile_handler *handler =
        doc_reader_ok(self->doc)
            ? pool_config_read_handler(self->doc, node, self->plugins, profiles, n)
            : NULL;
    if (doc_reader_ok(self->doc) && !handler && profile_collect_needs(profiles, &why) != ST_OK) {
        doc_reader_fail(self->doc, node, "%s", why.text);
    }
    if (!doc_reader_ok(self->doc)) {
        return;
    }
    spec->handler = handler;
    spec->profile = handler ? handler->stages[STAGE_DECODE].profile : profiles;
    for (size_t i = 0; i < n; i++) {
        const char *note = profile_load_note(&profiles[i]);
        if (note) {
            pool_spec_add_note(spec, n > 1 ? profiles[i].name : STR("profile"), note);
        }
    }
}

static void check_profile_name(struct profile_reader *self, const struct profile *profiles,
                               const struct doc_node *node) {
    for (const struct profile *other = profiles; other < self->profile; other++) {
        if (doc_reader_ok(self->doc) && str_eq(other->name, self->profile->name)) {
            doc_reader_fail(self->doc, node, "the profile \"%.*s\" is there twice",
                            STR_ARG(other->name));
        }
    }
}

/* Begins to read the profile. */
static void begin_profile(struct profile_reader *self, struct profile *profile) {
    self->filters = arena_calloc(self->doc->arena, MOST_PLUGINS, sizeof(*self->filters));
    self->scorers = arena_calloc(self->doc->arena, MOST_PLUGINS, sizeof(*self->scorers));
    self->profile = profile;
    *profile = (struct profile){.filters = self->filters, .scorers = self->scorers};
}

/* Without profiles all steps make up one. */
static void read_all_as_profile(struct profile_reader *self, const struct doc_node *node) {
    self->profile->name = STR("default");
    for (size_t i = 0; i < self->plugins->n && doc_reader_ok(self->doc); i++) {
        if (self->plugins->items[i].plugin) {
            add_step(self, &self->plugins->items[i], 1, node);
        }
    }
}

void pool_config_read_profile(struct doc_reader *reader, const struct doc_node *node, bool upstream,
                              struct plugin_list *list) {
    struct profile_reader self = {.reader = pool_config_reader_of(reader),
                                  .doc = reader,
                                  .upstream = upstream,
                                  .plugins = list};
    struct doc_node profiles = doc_get(node, "schedulingProfiles"), item = {0};
    size_t n = doc_is_present(&profiles) ? doc_count(&profiles) : 0, n_read = 0;
    list->node = doc_get(node, "plugins");
    if (self.reader->spec->profile) {
        doc_reader_fail(reader, node, "the file has a profile already");
    }
    if (n > HANDLER_MOST_PROFILES) {
        doc_reader_fail(reader, &profiles, "expected at most %d profiles, got %zu",
                        HANDLER_MOST_PROFILES, n);
    }
    bool fits = check_plugin_count(reader, &list->node);
    while (fits && doc_reader_next_part(reader, &list->node, &item)) {
        enum status before = doc_reader_begin_part(reader);
        read_plugin(&self, &item);
        doc_reader_end_part(reader, before);
    }
    picker_resolve_topology(reader, list);
    struct profile *items =
        arena_calloc(reader->arena, n > 0 && n <= HANDLER_MOST_PROFILES ? n : 1, sizeof(*items));
    item = (struct doc_node){0};
    while (n > 0 && n <= HANDLER_MOST_PROFILES && doc_reader_next_part(reader, &profiles, &item)) {
        enum status before = doc_reader_begin_part(reader);
        begin_profile(&self, &items[n_read++]);
        read_plugin_refs(&self, &item);
        check_profile_name(&self, items, &item);
        doc_reader_end_part(reader, before);
    }
    if (n_read == 0) {
        begin_profile(&self, &items[n_read++]);
        read_all_as_profile(&self, node);
    }
    end_profiles(&self, items, n_read, node);
}

static const struct doc_member PROFILE[] = {
    {"plugins", MEMBER_BY_CALLER}, {"schedulingProfiles", MEMBER_BY_CALLER}, {0}};

void pool_config_read_profile_section(struct doc_reader *reader, const struct doc_node *node,
                                      void *spec) {
    (void)spec;
    pool_config_reader_of(reader)->has_profile = doc_is_present(node);
    if (!doc_is_present(node)) {
        return;
    }
    struct plugin_list *list = arena_calloc(pool_config_reader_of(reader)->arena, 1, sizeof(*list));
    doc_reader_object(reader, node, PROFILE, NULL);
    pool_config_read_profile(reader, node, false, list);
    picker_check_detectors(reader, list);
}
