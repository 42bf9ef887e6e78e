/* Upstream's plugin `agent-identity`: headers with the session of an agent, by which requests
 * without a fairness id of their own are told apart. */
#include "pick/config/plugin_list.h"

enum { MOST_ADDITIONAL = 8 };

static void read_header(struct doc_reader *reader, const struct doc_node *node, struct str *out) {
    struct str name = {NULL, 0};
    doc_reader_view(reader, node, &name);
    doc_reader_dup_lower(reader, name, out);
    if (doc_reader_ok(reader) && !pool_config_is_header(*out)) {
        doc_reader_fail(reader, node, "expected the name of a header, got \"%.*s\"", STR_ARG(name));
    }
}

/* `out`: a struct protocol_headers. */
static void read_additional(struct doc_reader *reader, const struct doc_node *list, void *out) {
    struct protocol_headers *headers = out;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > MOST_ADDITIONAL) {
        doc_reader_fail(reader, list, "expected at most %d headers, got %zu", MOST_ADDITIONAL, n);
        return;
    }
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item);) {
        read_header(reader, &item, &headers->names[headers->n++]);
    }
}

const struct doc_member PICKER_AGENT_IDENTITY[] = {
    {"additionalSessionHeaders",
     MEMBER_CUSTOM_FIELD(struct picker_agent_identity, additional, struct protocol_headers,
                         read_additional),
     .form = "up to 8 headers", .help = "which count before the agents' own"},
    {0}};

static void add_header(struct protocol_headers *headers, struct str name) {
    if (headers->n < PROTOCOL_MAX_HEADERS) {
        headers->names[headers->n++] = name;
    }
}

/* A fairness id of the request's own counts before that of an agent. */
void picker_read_agent_identity(struct doc_reader *reader, const struct doc_node *document) {
    (void)document;
    static const char *const AGENTS[] = {"x-claude-code-session-id", "x-session-affinity",
                                         "session-id", "session_id"};
    const struct plugin_list *plugins = pool_config_reader_of(reader)->plugins;
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    struct protocol *protocol = &spec->protocol;
    struct protocol_headers *agents = &spec->agent_headers;
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *plugin = &plugins->items[i];
        const struct picker_agent_identity *identity = plugin->settings;
        if (!plugin->type || plugin->type->parameters != PICKER_AGENT_IDENTITY || !identity) {
            continue;
        }
        for (size_t k = 0; k < identity->additional.n; k++) {
            add_header(agents, identity->additional.names[k]);
        }
        for (size_t k = 0; k < sizeof(AGENTS) / sizeof(AGENTS[0]); k++) {
            add_header(agents, str_of(AGENTS[k]));
        }
    }
    for (size_t k = 0; k < agents->n; k++) {
        add_header(&protocol->fairness_headers, agents->names[k]);
    }
    protocol_update_lengths(protocol);
}
