/* Upstream's plugin `request-attribute-reporter`: a number that is computed from the usage of a
 * response, by an expression in CEL, for the proxy. */
#include "codec/cel/cel.h"
#include "pick/config/plugin_list.h"

static const char DEFAULT_NAMESPACE[] = "envoy.lb";

static const struct doc_member KEY[] = {
    {"namespace", MEMBER_BY_CALLER}, {"name", MEMBER_BY_CALLER}, {0}};
static const struct doc_member ATTRIBUTE[] = {{"key", MEMBER_BY_CALLER},
                                              {"expression", MEMBER_BY_CALLER},
                                              {"condition", MEMBER_BY_CALLER},
                                              {0}};

/* A response with a few tokens of each kind. */
static void note_failure(struct doc_reader *reader, const struct doc_node *node,
                         const struct cel_program *program) {
    static const struct cel_entry details[] = {
        {STR("cached_tokens"), {.type = CEL_DOUBLE, .real = 1}}};
    static const struct cel_entry usage[] = {
        {STR("prompt_tokens"), {.type = CEL_DOUBLE, .real = 2}},
        {STR("completion_tokens"), {.type = CEL_DOUBLE, .real = 3}},
        {STR("total_tokens"), {.type = CEL_DOUBLE, .real = 5}},
        {STR("prompt_tokens_details"), {.type = CEL_MAP, .map = {details, 1}}}};
    static const struct cel_map sample = {usage, sizeof(usage) / sizeof(*usage)};
    struct cel_value unused;
    struct error why;
    if (cel_evaluate(program, &sample, reader->arena, &unused, &why) != ST_OK) {
        struct str text =
            arena_printf(reader->arena, "no value of ordinary responses: %s", why.text);
        pool_config_add_note(reader, node, text.ptr ? text.ptr : "no value of ordinary responses");
    }
}

/* `types`: a bit for each that the value may have. */
static const struct cel_program *read_program(struct doc_reader *reader,
                                              const struct doc_node *node, unsigned types,
                                              const char *expected) {
    struct cel_program *program = NULL;
    struct str text = {NULL, 0};
    struct error why;
    doc_reader_view(reader, node, &text);
    if (!doc_reader_ok(reader)) {
        return NULL;
    }
    if (cel_compile(reader->arena, text, "usage", &program, &why) != ST_OK) {
        doc_reader_fail(reader, node, "%s", why.text);
        return NULL;
    }
    enum cel_type type = cel_result_type(program);
    if (type != CEL_DYN && !(types >> type & 1)) {
        doc_reader_fail(reader, node, "expected %s, and it is of the type %s", expected,
                        cel_type_name(type));
        return NULL;
    }
    note_failure(reader, node, program);
    return program;
}

static void read_attribute(struct doc_reader *reader, const struct doc_node *node,
                           struct pool_reporter *out) {
    struct doc_node key = doc_get(node, "key"), name = doc_get(&key, "name");
    struct doc_node space = doc_get(&key, "namespace"), expression = doc_get(node, "expression");
    struct doc_node condition = doc_get(node, "condition");
    struct str text = STR("");
    doc_reader_expect_object(reader, node);
    doc_reader_object(reader, node, ATTRIBUTE, NULL);
    doc_reader_object(reader, &key, KEY, NULL);
    pool_config_read_name(reader, &name, &out->key);
    doc_reader_view(reader, &space, &text);
    if (text.len > 0) {
        pool_config_read_name(reader, &space, &out->name_space);
    } else {
        out->name_space = str_of(DEFAULT_NAMESPACE);
    }
    if (doc_reader_ok(reader) && !doc_is_present(&expression)) {
        doc_reader_fail(reader, &expression, "expected an expression, got nothing");
    }
    out->expression = read_program(reader, &expression, 1 << CEL_INT | 1 << CEL_DOUBLE,
                                   "a number of type int or double");
    text = STR("");
    doc_reader_view(reader, &condition, &text);
    if (text.len > 0) {
        out->condition = read_program(reader, &condition, 1 << CEL_BOOL, "a bool");
    }
}

static void read_attributes(struct doc_reader *reader, const struct doc_node *list, void *object) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n != 1) {
        doc_reader_fail(reader, list, "expected one attribute, got %zu", n);
        return;
    }
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item);) {
        read_attribute(reader, &item, object);
    }
}

const struct doc_member PICKER_REPORTER[] = {
    {"attributes", MEMBER_CUSTOM(read_attributes),
     .form = "a list of one `{key: {namespace, name}, expression, condition}`",
     .help = "a number for the proxy, computed from the response's usage"},
    {0}};

void picker_read_reporters(struct doc_reader *reader, const struct doc_node *document) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct pool_spec *spec = pool->spec;
    (void)document;
    for (size_t i = 0; i < pool->plugins->n; i++) {
        const struct declared_plugin *plugin = &pool->plugins->items[i];
        const struct pool_reporter *reporter = plugin->settings;
        if (!plugin->type || plugin->type->parameters != PICKER_REPORTER || !reporter ||
            !reporter->expression) {
            continue;
        }
        if (spec->n_reporters == POOL_MAX_REPORTERS) {
            doc_reader_fail(reader, &plugin->item, "expected at most %d plugins of its type",
                            POOL_MAX_REPORTERS);
            return;
        }
        spec->reporters[spec->n_reporters++] = *reporter;
    }
}
