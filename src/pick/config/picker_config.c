/* An EndpointPickerConfig but for its plugins and profiles: gates, what others refer to, and the
 * sections that say what we do anyway. */
#include "pick/config/picker_config.h"

#include "core/base/buf.h"
#include "core/base/num.h"

/* ---- parts ----------------------------------------------------------------------------------- */

static const char LOADS[] = "endpoints are asked for their loads as `metrics` says";

const struct picker_plugin_type PICKER_PLUGIN_TYPES[] = {
#define PICKER_PLUGIN(type, kind, note) {(type), PICKER_PLUGIN_##kind, (note)},
#include "pick/config/picker_plugin_type.def"
#undef PICKER_PLUGIN
};

const size_t N_PICKER_PLUGIN_TYPES = sizeof(PICKER_PLUGIN_TYPES) / sizeof(PICKER_PLUGIN_TYPES[0]);

const struct picker_plugin_type *picker_plugin_type_find(struct str type) {
    for (size_t i = 0; i < N_PICKER_PLUGIN_TYPES; i++) {
        if (str_is(type, PICKER_PLUGIN_TYPES[i].type)) {
            return &PICKER_PLUGIN_TYPES[i];
        }
    }
    return NULL;
}

/* A name is the type where there is none. */
bool picker_plugin_find_by_name(const struct picker_config_reader *self, struct str name,
                                struct picker_plugin *out) {
    out->list = doc_get(self->node, "plugins");
    out->item = (struct doc_node){0};
    while (doc_is_present(&out->list) && doc_next(&out->list, &out->item)) {
        struct doc_node own = doc_get(&out->item, "name"), type = doc_get(&out->item, "type");
        struct str text = {NULL, 0}, kind = {NULL, 0};
        bool read = doc_read_str(&type, &kind, NULL) == ST_OK;
        text = kind;
        if (read && doc_read_str(&own, &text, NULL) == ST_OK && text.ptr && str_eq(text, name)) {
            out->part = picker_plugin_type_find(kind);
            out->parameters = doc_get(&out->item, "parameters");
            return true;
        }
    }
    return false;
}

/* "a, b, c" */
static struct str parts_of(const struct picker_config_reader *self, enum picker_plugin_kind kind) {
    struct buf names;
    buf_init(&names, self->reader->arena, 0);
    for (size_t i = 0; i < N_PICKER_PLUGIN_TYPES; i++) {
        if (PICKER_PLUGIN_TYPES[i].kind == kind) {
            buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", PICKER_PLUGIN_TYPES[i].type);
        }
    }
    return buf_str(&names);
}

enum status picker_plugin_find_by_ref(const struct picker_config_reader *self,
                                      const struct doc_node *ref, enum picker_plugin_kind kind,
                                      struct picker_plugin *out, struct error *err) {
    struct str name = {NULL, 0};
    *out = (struct picker_plugin){.part = NULL};
    enum status st = doc_read_str(ref, &name, err);
    if (st != ST_OK) {
        return st;
    }
    if (!picker_plugin_find_by_name(self, name, out)) {
        out->part = picker_plugin_type_find(name);
    }
    if (!out->part || out->part->kind != kind) {
        struct str names = parts_of(self, kind);
        return doc_error(ref, err, "\"%.*s\" is none of those that there are: %.*s", STR_ARG(name),
                         STR_ARG(names));
    }
    return out->part->note ? picker_config_add_note(self, ref, out->part->note, err) : ST_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum status picker_config_read_duration(const struct doc_node *node, uint64_t max_ns, uint64_t *out,
                                        struct error *err) {
    struct str text = {NULL, 0};
    uint64_t ns;
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK || !node->val) {
        return st;
    }
    if (!num_parse_go_duration_ns(text, &ns) || ns > max_ns) {
        return doc_error(node, err, "expected a time such as 200ms, 30s or 1m30s, got \"%.*s\"",
                         STR_ARG(text));
    }
    *out = ns;
    return ST_OK;
}

/* "flowControl.priorityBands[1].maxBytes" */
static void add_path(const struct doc_node *node, struct buf *out) {
    if (!node->parent) {
        return;
    }
    add_path(node->parent, out);
    if (node->key) {
        buf_printf(out, "%s%s", out->len > 0 ? "." : "", node->key);
    } else {
        buf_printf(out, "[%zu]", node->index);
    }
}

enum status picker_config_add_note(const struct picker_config_reader *self,
                                   const struct doc_node *node, const char *why,
                                   struct error *err) {
    struct buf path;
    struct str value;
    buf_init(&path, self->reader->arena, 0);
    add_path(node, &path);
    if (doc_read_str(node, &value, NULL) == ST_OK && node->val) {
        buf_printf(&path, ": %.*s", STR_ARG(value));
    }
    return pool_spec_add_note(self->reader->spec, buf_str(&path), why, err);
}

/* ---- gates ----------------------------------------------------------------------------------- */

static const struct {
    const char *name, *note;
} GATES[] = {
    {"flowControl", NULL},
    {"dataLayer", "endpoints are asked for their loads without it"},
    {"enableLegacyMetrics", "endpoints are asked for their loads without it"},
    {"prepareDataPlugins", "a profile gets what it wants to know of a request without it"},
    {"haPopulateNonLeaderDatastore", "every replica knows the pool at any time"},
};

enum { N_GATES = sizeof(GATES) / sizeof(GATES[0]) };

static enum status unknown_gate(const struct picker_config_reader *self,
                                const struct doc_node *node, struct str name, struct error *err) {
    struct buf names;
    buf_init(&names, self->reader->arena, 0);
    for (size_t i = 0; i < N_GATES; i++) {
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", GATES[i].name);
    }
    struct str text = buf_str(&names);
    return doc_error(node, err, "no feature gate is called \"%.*s\"; there are %.*s", STR_ARG(name),
                     STR_ARG(text));
}

/* "NAME", "NAME=true", "NAME=false" */
static enum status read_gate(struct picker_config_reader *self, const struct doc_node *node,
                             struct error *err) {
    struct str rest = {NULL, 0};
    size_t i = 0;
    enum status st = doc_read_str(node, &rest, err);
    if (st != ST_OK) {
        return st;
    }
    struct str name = str_cut(&rest, '=');
    while (i < N_GATES && !str_is(name, GATES[i].name)) {
        i++;
    }
    if (i == N_GATES) {
        return unknown_gate(self, node, name, err);
    }
    if (rest.ptr && !str_is(rest, "true") && !str_is(rest, "false")) {
        return doc_error(node, err, "expected %s=true or %s=false, got \"%.*s\"", GATES[i].name,
                         GATES[i].name, STR_ARG(rest));
    }
    if (!GATES[i].note) {
        self->flow_control = !rest.ptr || str_is(rest, "true");
    }
    return GATES[i].note ? picker_config_add_note(self, node, GATES[i].note, err) : ST_OK;
}

static enum status read_gates(struct picker_config_reader *self, struct error *err) {
    struct doc_node gates = doc_get(self->node, "featureGates");
    enum status st = ST_OK;
    for (struct doc_node item = {0};
         doc_is_present(&gates) && st == ST_OK && doc_next(&gates, &item);) {
        st = read_gate(self, &item, err);
    }
    return st;
}

/* ---- where loads come from, and parsers ------------------------------------------------------ */

/* Lists of references, whose names are looked up. */
static enum status check_refs(const struct picker_config_reader *self, const struct doc_node *list,
                              enum picker_plugin_kind kind, struct error *err) {
    static const char *const names[] = {"pluginRef", "extractors", NULL};
    enum status st = ST_OK;
    for (struct doc_node item = {0};
         doc_is_present(list) && st == ST_OK && doc_next(list, &item);) {
        struct doc_node ref = doc_get(&item, "pluginRef"), more = doc_get(&item, "extractors");
        struct picker_plugin plugin;
        st = doc_expect_object(&item, err);
        if (st == ST_OK) {
            st = doc_reject_unknown(&item, names, err);
        }
        if (st == ST_OK) {
            st = picker_plugin_find_by_ref(self, &ref, kind, &plugin, err);
        }
        for (struct doc_node one = {0};
             doc_is_present(&more) && st == ST_OK && doc_next(&more, &one);) {
            struct doc_node other = doc_get(&one, "pluginRef");
            st = picker_plugin_find_by_ref(self, &other, kind, &plugin, err);
        }
    }
    return st;
}

static enum status read_data(const struct picker_config_reader *self, const char *name,
                             struct error *err) {
    static const char *const names[] = {"sources", "injectDefaults", NULL};
    struct doc_node data = doc_get(self->node, name), sources = doc_get(&data, "sources");
    if (!doc_is_present(&data)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(&data, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(&data, names, err);
    }
    if (st == ST_OK && (!doc_is_present(&sources) || doc_count(&sources) == 0)) {
        st = picker_config_add_note(self, &data, LOADS, err);
    }
    return st == ST_OK ? check_refs(self, &sources, PICKER_PLUGIN_DATA, err) : st;
}

static enum status read_parsers(const struct picker_config_reader *self, struct error *err) {
    static const char *const names[] = {"parsers", NULL};
    struct doc_node one = doc_get(self->node, "parser");
    struct doc_node handler = doc_get(self->node, "requestHandler");
    struct doc_node list = doc_get(&handler, "parsers");
    enum status st = doc_is_present(&handler) ? doc_expect_object(&handler, err) : ST_OK;
    if (st == ST_OK && doc_is_present(&handler)) {
        st = doc_reject_unknown(&handler, names, err);
    }
    if (st == ST_OK) {
        st = check_refs(self, &one, PICKER_PLUGIN_PARSER, err);
    }
    return st == ST_OK ? check_refs(self, &list, PICKER_PLUGIN_PARSER, err) : st;
}

/* What these are told is not what we do. */
static enum status note_producers(const struct picker_config_reader *self, struct error *err) {
    struct doc_node list = doc_get(self->node, "plugins");
    enum status st = ST_OK;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        struct doc_node type = doc_get(&item, "type"), parameters = doc_get(&item, "parameters");
        struct str text = {NULL, 0};
        st = doc_read_str(&type, &text, err);
        const struct picker_plugin_type *part = st == ST_OK ? picker_plugin_type_find(text) : NULL;
        if (part && part->kind == PICKER_PLUGIN_PRODUCER && doc_is_present(&parameters)) {
            st = picker_config_add_note(self, &parameters, "a scorer's own parameters say it", err);
        }
    }
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

enum status pool_config_read_picker_config(struct pool_config_reader *reader,
                                           const struct doc_node *node, struct error *err) {
    struct picker_config_reader self = {.reader = reader, .node = node};
    enum status st = read_gates(&self, err);
    if (st == ST_OK) {
        st = picker_config_read_data_sources(&self, err);
    }
    if (st == ST_OK) {
        st = picker_config_read_saturation_detector(&self, err);
    }
    if (st == ST_OK) {
        st = picker_config_read_flow_control(&self, err);
    }
    if (st == ST_OK) {
        st = note_producers(&self, err);
    }
    if (st == ST_OK) {
        st = read_data(&self, "data", err);
    }
    if (st == ST_OK) {
        st = read_data(&self, "dataLayer", err);
    }
    return st == ST_OK ? read_parsers(&self, err) : st;
}
