/* The upstream picker's configuration, EndpointPickerConfig: which of its plugins its other members
 * refer to, and its feature gates. Plugins and the profile are read by profile.c, thresholds by
 * limits.c, flow control by flow_control.c, which read our own format, too; data sources by
 * data_sources.c.
 *
 * A setting that means the same here is applied. One that changes nothing gets a note, which
 * `sluice pick --check` prints. One that a user would rely on and that is not supported is an
 * error. */
#include "codec/prompt/model_location.h"
#include "core/base/buf.h"
#include "pick/config/plugin_list.h"
#include "pick/pool/profile/plugin.h"

/* ---- references to plugins ------------------------------------------------------------------- */

static struct picker_plugin read_ref(struct doc_reader *reader, const struct doc_node *ref,
                                     enum picker_plugin_kind kind) {
    const struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct picker_plugin plugin = {.type = NULL};
    struct str name = {NULL, 0};
    doc_reader_view(reader, ref, &name);
    if (!doc_reader_ok(reader)) {
        return plugin;
    }
    const struct declared_plugin *declared = plugin_list_find(pool->plugins, name);
    if (declared && declared->is_unknown) {
        return plugin; /* reported there */
    }
    plugin.type = declared ? declared->type : picker_plugin_type_find(name);
    if (declared) {
        plugin.parameters = declared->parameters;
        plugin.settings = declared->settings;
    }
    if (!plugin.type || plugin.type->kind != kind) {
        struct str names = picker_plugin_types_of_kind(pool->arena, kind);
        doc_reader_fail(reader, ref, "\"%.*s\" is not one of: %.*s", STR_ARG(name), STR_ARG(names));
        plugin.type = NULL;
    } else if (plugin.type->note) {
        pool_config_add_note(reader, ref, plugin.type->note);
    }
    return plugin;
}

struct picker_plugin picker_plugin_of_ref(struct doc_reader *reader, const struct doc_node *ref,
                                          enum picker_plugin_kind kind) {
    struct picker_plugin plugin = read_ref(reader, ref, kind);
    const struct picker_plugin_type *type = plugin.type;
    if (type && type->parameters && !plugin.settings) {
        void *settings = doc_reader_calloc(reader, 1, type->parameters_size);
        if (settings) {
            doc_reader_presets(type->parameters, settings);
        }
        plugin.settings = settings;
    }
    return plugin;
}

/* ---- saturation detector --------------------------------------------------------------------- */

static const char DEFAULT_DETECTOR[] = "utilization-detector";

/* Upstream always has a detector. One that the document does not mention applies where loads are
 * scraped or flow control is on, unless our own limits are given. `flowControl.saturationDetector`
 * has precedence over `saturationDetector`. */
static void read_saturation_detector(struct doc_reader *reader, const struct doc_node *document) {
    static const struct doc_member members[] = {{"pluginRef", MEMBER_BY_CALLER}, {0}};
    const struct pool_config_reader *pool = pool_config_reader_of(reader);
    const struct declared_plugin *declared =
        plugin_list_find(pool->plugins, str_of(DEFAULT_DETECTOR));
    struct doc_node flow = doc_get(document, "flowControl"), member = {0};
    struct doc_node said = doc_get(&flow, "saturationDetector");
    if (!doc_is_present(&said)) {
        said = doc_get(document, "saturationDetector");
    }
    struct doc_node ref = doc_get(&said, "pluginRef");
    bool is_said = doc_is_present(&said);
    bool applies = pool->spec->scrape || pool->flow_control_gate;
    if (!is_said && !declared && (!applies || pool->saturation_limits_given)) {
        return;
    }
    if (pool->saturation_limits_given) {
        doc_reader_fail(reader, declared && !is_said ? &declared->item : &said,
                        "the file has `saturation` already");
    }
    if (is_said) {
        doc_reader_expect_object(reader, &said);
    }
    if (!doc_reader_ok(reader)) {
        return;
    }
    if (doc_is_present(&ref)) {
        doc_reader_reject_unknown(reader, &said, members, NULL);
        struct picker_plugin plugin = read_ref(reader, &ref, PICKER_PLUGIN_DETECTOR);
        if (plugin.type && strcmp(plugin.type->type, DEFAULT_DETECTOR) == 0) {
            picker_set_utilization(reader, &ref, plugin.settings);
        } else if (plugin.type) {
            picker_set_concurrency(reader, plugin.settings);
        }
    } else if (doc_next_member(&said, &member)) { /* thresholds, as in releases before 1.5 */
        picker_read_utilization(reader, &said);
    } else if (declared && declared->plugin == &plugin_concurrency_detector) {
        picker_set_concurrency(reader, declared->settings);
    } else {
        bool is_right = declared && declared->plugin == &plugin_utilization_detector;
        picker_set_utilization(reader, &said, is_right ? declared->settings : NULL);
    }
}

static void read_detectors(struct doc_reader *reader, const struct doc_node *document) {
    picker_check_detectors(reader, pool_config_reader_of(reader)->plugins);
    read_saturation_detector(reader, document);
}

/* ---- feature gates --------------------------------------------------------------------------- */

static const struct {
    const char *name, *note;
} GATES[] = {
    {"flowControl", NULL},
    {"dataLayer", "loads are scraped without it"},
    {"enableLegacyMetrics", "loads are scraped without it"},
    {"prepareDataPlugins", "scorers get a request's data without it"},
    {"haPopulateNonLeaderDatastore", "every replica always has the pool"},
};

enum { N_GATES = sizeof(GATES) / sizeof(GATES[0]) };

/* "NAME", "NAME=true", "NAME=false" */
static void read_gate(struct doc_reader *reader, const struct doc_node *node) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct str rest = {NULL, 0};
    struct buf names;
    size_t i = 0;
    doc_reader_view(reader, node, &rest);
    if (!doc_reader_ok(reader)) {
        return;
    }
    struct str name = str_cut(&rest, '=');
    buf_init(&names, pool->arena, 0);
    for (; i < N_GATES && !str_is(name, GATES[i].name); i++) {
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", GATES[i].name);
    }
    if (i == N_GATES) {
        struct str text = buf_str(&names);
        doc_reader_fail(reader, node, "no feature gate is called \"%.*s\"; there are %.*s",
                        STR_ARG(name), STR_ARG(text));
        return;
    }
    if (rest.ptr && !str_is(rest, "true") && !str_is(rest, "false")) {
        doc_reader_fail(reader, node, "expected %s=true or %s=false, got \"%.*s\"", GATES[i].name,
                        GATES[i].name, STR_ARG(rest));
    } else if (GATES[i].note) {
        pool_config_add_note(reader, node, GATES[i].note);
    } else {
        pool->flow_control_gate = !rest.ptr || str_is(rest, "true");
    }
}

/* ---- load sources and parsers ---------------------------------------------------------------- */

/* Checks that the references in a list can be resolved. */
static void check_refs(struct doc_reader *reader, const struct doc_node *list,
                       enum picker_plugin_kind kind) {
    static const struct doc_member members[] = {
        {"pluginRef", MEMBER_BY_CALLER}, {"extractors", MEMBER_BY_CALLER}, {0}};
    for (struct doc_node item = {0};
         doc_is_present(list) && doc_reader_next(reader, list, &item);) {
        struct doc_node ref = doc_get(&item, "pluginRef"), more = doc_get(&item, "extractors");
        doc_reader_object(reader, &item, members, NULL);
        (void)read_ref(reader, &ref, kind);
        for (struct doc_node one = {0};
             doc_is_present(&more) && doc_reader_next(reader, &more, &one);) {
            struct doc_node other = doc_get(&one, "pluginRef");
            (void)read_ref(reader, &other, kind);
        }
    }
}

/* ---- discovery ------------------------------------------------------------------------------- */

const struct doc_member PICKER_FILE_DISCOVERY[] = {
    {"path",
     MEMBER_CUSTOM_FIELD(struct picker_file_discovery, path, struct str, pool_config_read_name),
     .form = "a path", .help = "of the file with the endpoints"},
    {"watchFile", MEMBER_BOOL(struct picker_file_discovery, is_watched),
     .help = "the file is read again when it has changed; false"},
    {0}};

/* `{pluginRef}`: in v1alpha1 of `discovery` itself, in v1 of its `endpoints`. */
static void read_endpoints_ref(struct doc_reader *reader, const struct doc_node *node) {
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    struct doc_node ref = doc_get(node, "pluginRef");
    struct str name = {NULL, 0};
    doc_reader_view(reader, &ref, &name);
    if (!read_ref(reader, &ref, PICKER_PLUGIN_DISCOVERY).type) {
        return;
    }
    const struct declared_plugin *declared =
        plugin_list_find(pool_config_reader_of(reader)->plugins, name);
    if (!declared) {
        doc_reader_fail(reader, &ref, "no plugin above has the name \"%.*s\"", STR_ARG(name));
        return;
    }
    const struct picker_file_discovery *file = declared->settings;
    spec->endpoints_file.path = file->path;
    spec->endpoints_file.is_watched = file->is_watched;
}

static void read_discovery(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    static const struct doc_member refs[] = {{"pluginRef", MEMBER_BY_CALLER}, {0}};
    static const struct doc_member members[] = {
        {"endpoints", MEMBER_BY_CALLER},
        {"pluginRef", MEMBER_BY_CALLER},
        {"peers", MEMBER_REFUSED("not supported: replicas do not know of each other")},
        {0}};
    struct doc_node endpoints = doc_get(node, "endpoints"), ref = doc_get(node, "pluginRef");
    (void)unused;
    if (!doc_is_present(node)) {
        return;
    }
    doc_reader_object(reader, node, members, NULL);
    if (doc_is_present(&endpoints)) {
        doc_reader_object(reader, &endpoints, refs, NULL);
        read_endpoints_ref(reader, &endpoints);
    }
    if (doc_is_present(&endpoints) && doc_is_present(&ref)) {
        doc_reader_fail(reader, &ref, "expected `endpoints: {pluginRef}` or `pluginRef`, got both");
    } else if (doc_is_present(&ref)) {
        read_endpoints_ref(reader, node);
    }
}

/* Without sources upstream scrapes nothing where `injectDefaults` is false; flags and `metrics` of
 * ours are obeyed. */
static void read_inject_defaults(struct doc_reader *reader, const struct doc_node *node,
                                 void *unused) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct doc_node sources = doc_get(node->parent, "sources");
    bool injects = true;
    (void)unused;
    doc_reader_bool(reader, node, &injects);
    if (!injects && doc_count(&sources) == 0 && !pool->metrics_given) {
        pool->spec->scrape = pool->scrape = NULL;
    }
}

static void read_data(struct doc_reader *reader, const struct doc_node *data) {
    static const struct doc_member members[] = {
        {"sources", MEMBER_BY_CALLER},
        {"injectDefaults", MEMBER_CUSTOM(read_inject_defaults)},
        {"discovery", MEMBER_CUSTOM(read_discovery)},
        {"crossReplica",
         MEMBER_REFUSED("not supported: replicas do not know of each other's requests")},
        {0}};
    struct doc_node sources = doc_get(data, "sources");
    if (!doc_is_present(data)) {
        return;
    }
    doc_reader_object(reader, data, members, NULL);
    if (doc_count(&sources) == 0 && pool_config_reader_of(reader)->scrape) {
        pool_config_add_note(reader, data, "loads are scraped as `metrics` configures");
    }
    check_refs(reader, &sources, PICKER_PLUGIN_DATA);
}

const struct picker_parser PICKER_PARSERS[] = {{"openai-parser", MODEL_PARSER_OPENAI},
                                               {"anthropic-parser", MODEL_PARSER_ANTHROPIC},
                                               {"vllmhttp-parser", MODEL_PARSER_VLLM_HTTP},
                                               {"sglanghttp-parser", MODEL_PARSER_SGLANG_HTTP},
                                               {"vllmgrpc-parser", MODEL_PARSER_VLLM_GRPC},
                                               {"vertexai-parser", MODEL_PARSER_VERTEX},
                                               {"passthrough-parser", MODEL_PARSER_PASSTHROUGH}};
const size_t N_PICKER_PARSERS = sizeof(PICKER_PARSERS) / sizeof(PICKER_PARSERS[0]);

static unsigned parser_bit(const struct picker_plugin_type *type) {
    for (size_t i = 0; type && i < N_PICKER_PARSERS; i++) {
        if (strcmp(type->type, PICKER_PARSERS[i].type) == 0) {
            return PICKER_PARSERS[i].bit;
        }
    }
    return 0;
}

/* As upstream: those after passthrough-parser, which claims all paths, are left out, and so is
 * `parser` where there are `parsers`. */
static void add_parser(struct doc_reader *reader, const struct doc_node *item, unsigned *parsers) {
    static const struct doc_member members[] = {{"pluginRef", MEMBER_BY_CALLER}, {0}};
    struct doc_node ref = doc_get(item, "pluginRef");
    doc_reader_object(reader, item, members, NULL);
    unsigned bit = parser_bit(read_ref(reader, &ref, PICKER_PLUGIN_PARSER).type);
    if (*parsers & MODEL_PARSER_PASSTHROUGH) {
        pool_config_add_note(reader, item, "no effect: it is after passthrough-parser");
        return;
    }
    *parsers |= bit;
}

static void read_parsers(struct doc_reader *reader, const struct doc_node *document) {
    static const struct doc_member members[] = {{"parsers", MEMBER_BY_CALLER}, {0}};
    struct doc_node one = doc_get(document, "parser"), item = {0};
    struct doc_node handler = doc_get(document, "requestHandler");
    struct doc_node list = doc_get(&handler, "parsers");
    unsigned older = 0, parsers = 0;
    if (doc_is_present(&handler)) {
        doc_reader_object(reader, &handler, members, NULL);
    }
    if (doc_is_present(&one)) {
        add_parser(reader, &one, &older);
    }
    while (doc_is_present(&list) && doc_reader_next(reader, &list, &item)) {
        add_parser(reader, &item, &parsers);
    }
    parsers = parsers != 0 ? parsers : older;
    pool_config_reader_of(reader)->spec->parsers = parsers != 0 ? parsers : MODEL_PARSERS_DEFAULT;
}

/* Adds a note for the parameters of producers, which are ignored. */
static void note_producers(struct doc_reader *reader, const struct doc_node *document) {
    (void)document;
    const struct plugin_list *plugins = pool_config_reader_of(reader)->plugins;
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *plugin = &plugins->items[i];
        if (plugin->type && plugin->type->kind == PICKER_PLUGIN_PRODUCER &&
            !plugin->type->parameters && doc_is_present(&plugin->parameters)) {
            pool_config_add_note(reader, &plugin->parameters,
                                 "configured by the scorer's own parameters");
        }
    }
}

/* ---- the document ---------------------------------------------------------------------------- */

const struct doc_member POOL_CONFIG_PICKER[] = {
    {"plugins", MEMBER_BY_CALLER},        {"schedulingProfiles", MEMBER_BY_CALLER},
    {"featureGates", MEMBER_BY_CALLER},   {"saturationDetector", MEMBER_BY_CALLER},
    {"flowControl", MEMBER_BY_CALLER},    {"data", MEMBER_BY_CALLER},
    {"dataLayer", MEMBER_BY_CALLER},      {"parser", MEMBER_BY_CALLER},
    {"requestHandler", MEMBER_BY_CALLER}, {0}};

typedef void part_reader(struct doc_reader *reader, const struct doc_node *document);

static void read_profiles(struct doc_reader *reader, const struct doc_node *document) {
    pool_config_read_profile(reader, document, true, pool_config_reader_of(reader)->plugins);
}

static void read_gates(struct doc_reader *reader, const struct doc_node *document) {
    struct doc_node gates = doc_get(document, "featureGates"), gate = {0};
    while (doc_is_present(&gates) && doc_reader_next_part(reader, &gates, &gate)) {
        enum status before = doc_reader_begin_part(reader);
        read_gate(reader, &gate);
        doc_reader_end_part(reader, before);
    }
}

static void read_data_layer(struct doc_reader *reader, const struct doc_node *document) {
    struct doc_node data = doc_get(document, "data"), layer = doc_get(document, "dataLayer");
    struct doc_node sources = doc_get(doc_is_present(&layer) ? &layer : &data, "sources");
    picker_read_data_sources(reader, &sources);
    read_data(reader, &data);
    read_data(reader, &layer);
}

static void read_rollout(struct doc_reader *reader, const struct doc_node *document) {
    (void)document;
    picker_read_rollout(reader);
}

/* In the order of their dependencies: the detector asks whether loads are scraped. */
static part_reader *const PARTS[] = {read_profiles,
                                     read_rollout,
                                     read_gates,
                                     read_data_layer,
                                     read_detectors,
                                     picker_read_flow_control,
                                     picker_read_agent_identity,
                                     picker_read_admitter,
                                     picker_read_reporters,
                                     note_producers,
                                     read_parsers};

void pool_config_read_picker_config(struct pool_config_reader *reader,
                                    const struct doc_node *node) {
    reader->plugins = arena_calloc(reader->arena, 1, sizeof(*reader->plugins));
    reader->spec->refuses_uncached = true;
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++) {
        enum status before = doc_reader_begin_part(&reader->doc);
        PARTS[i](&reader->doc, node);
        doc_reader_end_part(&reader->doc, before);
    }
}
