/* How endpoints are chosen: plugins, and a profile that refers to them, as in the upstream
 * project's EndpointPickerConfig. There is one profile. Fields and plugins of it that mean nothing
 * here are refused, so that nobody relies on what does not happen. */
#include "pick/pool/profile/profile.h"
#include "core/base/buf.h"
#include "core/base/suggest.h"
#include "pick/config/picker_config.h"

enum { MOST_PLUGINS = 64, MOST_WEIGHT = 1000000 };

/* Is there for the gateways' conformance tests: the protocol's `served_header` works. */
static const char VERIFIER[] = "destination-endpoint-served-verifier";

struct declared {
    struct str name;
    const struct plugin *plugin;  /* NULL: it has no place in a profile */
    enum picker_plugin_kind kind; /* then */
    void *parameters;
};

struct profile_reader {
    struct pool_config_reader *reader;
    bool upstream; /* an EndpointPickerConfig */
    struct declared plugins[MOST_PLUGINS];
    size_t n_plugins;
    struct profile *profile;
    struct profile_step *filters, *scorers;
};

/* ---- plugins --------------------------------------------------------------------------------- */

/* What was meant, or else all of the kind that the name's end says. */
static enum status unknown_type(const struct profile_reader *self, const struct doc_node *node,
                                struct str type, struct error *err) {
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
        return doc_error(node, err, "no plugin is called \"%.*s\"; there are %.*s", STR_ARG(type),
                         STR_ARG(text));
    }
    return doc_error(node, err, "no plugin is called \"%.*s\"%s", STR_ARG(type),
                     suggestion.best.ptr ? suggest_hint(&suggestion, hint)
                                         : "; their names end in -filter, -scorer or -picker");
}

static const struct declared *find_declared(const struct profile_reader *self, struct str name) {
    for (size_t i = 0; i < self->n_plugins; i++) {
        if (str_eq(self->plugins[i].name, name)) {
            return &self->plugins[i];
        }
    }
    return NULL;
}

static enum status read_plugin(struct profile_reader *self, const struct doc_node *node,
                               struct error *err) {
    static const char *const names[] = {"name", "type", "parameters", NULL};
    struct pool_config_reader *reader = self->reader;
    struct declared *plugin = &self->plugins[self->n_plugins];
    struct doc_node type = doc_get(node, "type"), name = doc_get(node, "name");
    struct doc_node parameters = doc_get(node, "parameters");
    struct str text = {NULL, 0};
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &type, &text, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, doc_is_present(&name) ? &name : &type, &plugin->name,
                                   err);
    }
    if (st != ST_OK) {
        return st;
    }
    if (find_declared(self, plugin->name)) {
        return doc_error(node, err, "the plugin \"%.*s\" is there twice", STR_ARG(plugin->name));
    }
    const struct picker_plugin_type *part = picker_plugin_type_find(text);
    plugin->plugin = plugin_find(text);
    reader->spec->protocol.send_served_header |= str_is(text, VERIFIER);
    if (!plugin->plugin && !(part && (self->upstream || part->kind == PICKER_PLUGIN_HANDLER))) {
        return unknown_type(self, &type, text, err);
    }
    plugin->kind = part ? part->kind : PICKER_PLUGIN_HANDLER;
    self->n_plugins++;
    return plugin->plugin ? plugin_read_parameters(plugin->plugin, &parameters, reader->spec->arena,
                                                   &plugin->parameters, err)
                          : ST_OK;
}

static enum status read_plugins(struct profile_reader *self, const struct doc_node *list,
                                struct error *err) {
    enum status st = ST_OK;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n == 0 || n > MOST_PLUGINS) {
        return doc_error(list, err, "expected 1 to %d plugins, got %zu", MOST_PLUGINS, n);
    }
    for (struct doc_node item = {0}; st == ST_OK && doc_next(list, &item);) {
        st = read_plugin(self, &item, err);
    }
    return st;
}

/* ---- the profile ----------------------------------------------------------------------------- */

/* In the order of the file. */
static enum status add_step(struct profile_reader *self, const struct declared *declared,
                            float weight, const struct doc_node *node, struct error *err) {
    struct profile *profile = self->profile;
    struct profile_step step = {declared->plugin, declared->parameters, weight, declared->name};
    if (!step.plugin) {
        return declared->kind != PICKER_PLUGIN_HANDLER
                   ? doc_error(node, err, "\"%.*s\" has no place in a profile",
                               STR_ARG(declared->name))
                   : ST_OK;
    }
    switch (step.plugin->kind) {
    case PLUGIN_FILTER:
        self->filters[profile->n_filters++] = step;
        break;
    case PLUGIN_SCORER:
        self->scorers[profile->n_scorers++] = step;
        break;
    case PLUGIN_PICKER:
        if (profile->picker.plugin) {
            return doc_error(node, err, "expected one picker, got \"%.*s\" and \"%.*s\"",
                             STR_ARG(profile->picker.name), STR_ARG(step.name));
        }
        profile->picker = step;
        break;
    }
    return ST_OK;
}

static enum status read_weight(const struct doc_node *node, const struct declared *declared,
                               float *out, struct error *err) {
    double weight = 1;
    enum status st = doc_read_f64(node, &weight, err);
    if (st == ST_OK && !(weight >= 0 && weight <= MOST_WEIGHT)) {
        st = doc_error(node, err, "expected a weight from 0 to %d", MOST_WEIGHT);
    }
    if (st == ST_OK && node->val && declared->plugin && declared->plugin->kind != PLUGIN_SCORER) {
        st = doc_error(node, err, "\"%.*s\" is a %s; only scorers have weights",
                       STR_ARG(declared->name), plugin_kind_name(declared->plugin->kind));
    }
    *out = (float)weight;
    return st;
}

static enum status read_reference(struct profile_reader *self, const struct doc_node *node,
                                  struct error *err) {
    static const char *const names[] = {"pluginRef", "weight", NULL};
    struct doc_node ref = doc_get(node, "pluginRef"), weight_node = doc_get(node, "weight");
    struct str name = {NULL, 0};
    float weight;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(self->reader, &ref, &name, err);
    }
    if (st != ST_OK) {
        return st;
    }
    const struct declared *declared = find_declared(self, name);
    if (!declared) {
        struct suggestion suggestion = {0};
        char hint[SUGGEST_HINT_BYTES];
        for (size_t i = 0; i < self->n_plugins; i++) {
            suggest_consider(&suggestion, name, self->plugins[i].name);
        }
        return doc_error(&ref, err, "no plugin above has the name \"%.*s\"%s", STR_ARG(name),
                         suggest_hint(&suggestion, hint));
    }
    st = read_weight(&weight_node, declared, &weight, err);
    return st == ST_OK ? add_step(self, declared, weight, node, err) : st;
}

/* Without a profile all plugins are one. */
static enum status take_all(struct profile_reader *self, const struct doc_node *node,
                            struct error *err) {
    enum status st = ST_OK;
    self->profile->name = STR("default");
    for (size_t i = 0; i < self->n_plugins && st == ST_OK; i++) {
        if (self->plugins[i].plugin) {
            st = add_step(self, &self->plugins[i], 1, node, err);
        }
    }
    return st;
}

static enum status read_references(struct profile_reader *self, const struct doc_node *node,
                                   struct error *err) {
    static const char *const names[] = {"name", "plugins", NULL};
    struct doc_node name = doc_get(node, "name"), list = doc_get(node, "plugins");
    size_t n = doc_is_present(&list) ? doc_count(&list) : 0;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(self->reader, &name, &self->profile->name, err);
    }
    if (st == ST_OK && (n == 0 || n > MOST_PLUGINS)) {
        st = doc_error(&list, err, "expected 1 to %d plugins, got %zu", MOST_PLUGINS, n);
    }
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        st = read_reference(self, &item, err);
    }
    return st;
}

static enum status make_room(struct profile_reader *self, struct error *err) {
    struct arena *arena = self->reader->spec->arena;
    self->profile = arena_calloc(arena, 1, sizeof(*self->profile));
    self->filters = arena_calloc(arena, MOST_PLUGINS, sizeof(*self->filters));
    self->scorers = arena_calloc(arena, MOST_PLUGINS, sizeof(*self->scorers));
    if (!self->profile || !self->filters || !self->scorers) {
        return pool_config_no_memory(self->reader, err);
    }
    self->profile->filters = self->filters;
    self->profile->scorers = self->scorers;
    return ST_OK;
}

enum status pool_config_read_profile(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) {
    struct profile_reader self = {.reader = reader, .upstream = pool_config_is_kube_object(node)};
    struct doc_node plugins = doc_get(node, "plugins");
    struct doc_node profiles = doc_get(node, "schedulingProfiles");
    size_t n = doc_is_present(&profiles) ? doc_count(&profiles) : 0;
    if (reader->spec->profile) {
        return doc_error(node, err, "the file says how to choose already");
    }
    if (n > 1) {
        return doc_error(&profiles, err, "expected one profile, got %zu", n);
    }
    enum status st = make_room(&self, err);
    if (st == ST_OK) {
        st = read_plugins(&self, &plugins, err);
    }
    struct doc_node item = {0};
    if (st == ST_OK) {
        st = n > 0 && doc_next(&profiles, &item) ? read_references(&self, &item, err)
                                                 : take_all(&self, node, err);
    }
    if (!self.profile || st != ST_OK) {
        return st;
    }
    if (!self.profile->picker.plugin) {
        self.profile->picker = PROFILE_DEFAULT.picker;
    }
    struct error why = {.status = ST_OK};
    st = profile_collect_needs(self.profile, &why);
    if (st != ST_OK) {
        st = doc_error(node, err, "%s", why.text);
    }
    reader->spec->profile = st == ST_OK ? self.profile : NULL;
    return st;
}
