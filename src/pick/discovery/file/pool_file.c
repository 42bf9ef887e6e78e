/* Reads the documents of a configuration file in the order of their dependencies: the list of
 * pools, InferencePools with the ports of the endpoints, our own document, and objects that refer
 * to pools. */
#include "pick/discovery/file/pool_file.h"

#include "pick/config/dns_plan.h"
#include "pick/config/reader.h"

static const char *const SECTIONS[] = {"endpoints",
                                       "ports",
                                       "selector",
                                       "models",
                                       "unknown_models",
                                       "model_paths",
                                       "objectives",
                                       "rewrites",
                                       "saturation",
                                       "flow_control",
                                       "health",
                                       "protocol",
                                       "refused_for",
                                       "outlier_detection",
                                       "profile",
                                       "metrics",
                                       "dns",
                                       NULL};

/* ---- documents ------------------------------------------------------------------------------- */

static enum status read_profile(struct pool_config_reader *reader, const struct doc_node *node,
                                struct error *err) {
    static const char *const names[] = {"plugins", "schedulingProfiles", NULL};
    struct doc_node profile = doc_get(node, "profile");
    if (!doc_is_present(&profile)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(&profile, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(&profile, names, err);
    }
    return st == ST_OK ? pool_config_read_profile(reader, &profile, err) : st;
}

/* Reads the settings of one pool: the members of a document, or of an item in the list of pools. */
static enum status read_sections(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) {
    struct doc_node profile = doc_get(node, "profile");
    reader->has_profile = doc_is_present(&profile);
    enum status st = pool_config_read_endpoints(reader, node, err);
    if (st == ST_OK) {
        st = pool_config_read_dns(reader, node, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_models(reader, node, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_settings(reader, node, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_metrics(reader, node, err);
    }
    return st == ST_OK ? read_profile(reader, node, err) : st;
}

/* ---- a list of pools ------------------------------------------------------------------------- */

enum { N_SECTIONS = sizeof(SECTIONS) / sizeof(SECTIONS[0]) };

/* Rejects other sections beside the list `pools`: a pool's settings belong into its item. */
static enum status check_alone(const struct doc_node *node, struct error *err) {
    for (size_t i = 0; SECTIONS[i]; i++) {
        struct doc_node section = doc_get(node, SECTIONS[i]);
        if (section.val) {
            return doc_error(&section, err,
                             "is for a file of one pool: beside `pools` it stands in each of them");
        }
    }
    return ST_OK;
}

static enum status read_list(struct pool_config_file *file, const struct doc_node *list,
                             struct error *err) {
    const char *names[N_SECTIONS + 2] = {"name", "match"};
    struct doc_node item = {0};
    enum status st = ST_OK;
    memcpy(names + 2, SECTIONS, sizeof(SECTIONS)); /* including the NULL at the end */
    for (size_t i = 0; st == ST_OK && doc_next(list, &item); i++) {
        st = doc_reject_unknown(&item, names, err);
        if (st == ST_OK) {
            st = read_sections(&file->items[i], &item, err);
        }
        st = st == ST_OK ? ST_OK : pool_config_error_add_pool(&file->items[i], err);
    }
    return st;
}

/* Reads a document of our own format. */
static enum status read_own(struct pool_config_file *file, const struct doc_node *node,
                            struct error *err) {
    struct doc_node list = doc_get(node, "pools");
    return list.val ? read_list(file, &list, err) : read_sections(&file->items[0], node, err);
}

/* Reads only the list of pools and their names. */
static enum status begin_own(struct pool_config_file *file, const struct doc_node *node,
                             struct error *err) {
    const char *names[N_SECTIONS + 1] = {"pools"};
    struct doc_node list = doc_get(node, "pools");
    memcpy(names + 1, SECTIONS, sizeof(SECTIONS));
    if (file->has_sluice_document) {
        return doc_error(node, err,
                         "expected one document of the picker's own settings, got a second (an "
                         "object of the API has `apiVersion` and `kind`)");
    }
    file->has_sluice_document = true;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK && list.val) {
        st = check_alone(node, err);
    }
    return st == ST_OK ? pool_config_read_pools(file, node, err) : st;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* The passes over the documents: the list of pools; InferencePools, whose selectors and ports apply
 * to the file's endpoints; our own document; objects that refer to pools. */
enum pass { PASS_LIST, PASS_POOLS, PASS_OWN, PASS_OBJECTS, N_PASSES };

static enum status read_document(struct pool_config_file *file, const struct doc_node *node,
                                 enum pass pass, struct error *err) {
    bool object = pool_config_is_kube_object(node);
    switch (pass) {
    case PASS_LIST:
        return object ? ST_OK : begin_own(file, node, err);
    case PASS_OWN:
        return object ? ST_OK : read_own(file, node, err);
    case PASS_POOLS:
    case PASS_OBJECTS:
        return object ? pool_config_read_kube_object(file, node, pass == PASS_POOLS, err) : ST_OK;
    case N_PASSES:
        break;
    }
    return ST_OK;
}

static enum status read_documents(struct pool_config_file *file, const struct doc *doc,
                                  enum pass pass, struct error *err) {
    struct doc_node root = doc_root(doc);
    enum status st = ST_OK;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&root, &item);) {
        struct doc_node document = item;
        document.parent = NULL; /* error texts print paths from the document on */
        if (doc_is_present(&document)) {
            st = read_document(file, &document, pass, err);
        }
    }
    return st;
}

/* ---- a whole file ---------------------------------------------------------------------------- */

static enum status check_names(struct pool_config_reader *reader, struct error *err) {
    enum status st = pool_config_check_unique(reader, &reader->endpoints, "endpoint", err);
    if (st == ST_OK) {
        st = pool_config_check_unique(reader, &reader->models, "model", err);
    }
    if (st == ST_OK) {
        st = pool_config_check_unique(reader, &reader->objectives, "objective", err);
    }
    if (st == ST_OK) {
        st = pool_config_check_unique(reader, &reader->rewrites, "rewrite of the model", err);
    }
    if (st == ST_OK) {
        st = pool_config_check_unique(reader, &reader->split, "model", err);
    }
    return st == ST_OK ? pool_config_check_disjoint(reader, &reader->split, &reader->rewrites, err)
                       : st;
}

static enum status end_pool(struct pool_config_reader *reader, struct error *err) {
    reader->spec->strict_models = reader->unknown == POOL_CONFIG_UNKNOWN_UNSET
                                      ? reader->has_models
                                      : reader->unknown == POOL_CONFIG_UNKNOWN_REFUSE;
    reader->spec->strict_models_set = reader->unknown != POOL_CONFIG_UNKNOWN_UNSET;
    enum status st = check_names(reader, err);
    return st == ST_OK ? ST_OK : pool_config_error_add_pool(reader, err);
}

/* The texts that are read as one file. */
struct texts {
    const struct pool_config_source *sources;
    struct doc *docs[POOL_CONFIG_MAX_SOURCES]; /* NULL: skipped */
    size_t n;
};

/* Returns: the source is a default, and a source before it has a document of our own format. */
static bool is_left_out(const struct pool_config_file *file,
                        const struct pool_config_source *source) {
    return source->is_default && file->has_sluice_document;
}

static enum status read_pass(struct pool_config_file *file, struct texts *texts, enum pass pass,
                             struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < texts->n && st == ST_OK; i++) {
        if (pass == PASS_LIST && is_left_out(file, &texts->sources[i])) {
            doc_free(texts->docs[i]);
            texts->docs[i] = NULL;
        }
        st = texts->docs[i] ? read_documents(file, texts->docs[i], pass, err) : ST_OK;
        if (pass == PASS_OWN && texts->docs[i] && texts->sources[i].is_default) {
            file->items[0].metrics_given = false;
        }
    }
    if (st == ST_OK && pass == PASS_LIST &&
        !file->items) { /* the file has only objects, or nothing */
        st = pool_config_read_pools(file, &(struct doc_node){.doc = texts->docs[0]}, err);
    }
    return st;
}

static enum status read_all(struct pool_config_file *file, struct texts *texts, struct error *err) {
    enum status st = ST_OK;
    for (int pass = 0; pass < N_PASSES && st == ST_OK; pass++) {
        st = read_pass(file, texts, (enum pass)pass, err);
    }
    for (size_t i = 0; i < file->n && st == ST_OK; i++) {
        st = end_pool(&file->items[i], err);
    }
    return st;
}

/* Moves the readers' specs into the result, after errors, too. */
static enum status take_specs(struct pool_config_file *file, struct pool_specs *out,
                              struct error *err) {
    enum status st = ST_OK;
    out->is_list = file->by_name != NULL;
    for (size_t i = 0; i < file->n; i++) {
        struct pool_spec *spec = file->items[i].spec;
        if (st == ST_OK) {
            st = pool_specs_add(out, spec, err);
        } else {
            pool_spec_free(spec);
        }
    }
    return st;
}

static enum status parse_documents(struct pool_config_file *file, struct texts *texts,
                                   struct pool_specs *out, struct error *err) {
    struct error unused;
    enum status st = read_all(file, texts, err);
    enum status taken = take_specs(file, out, st == ST_OK ? err : &unused);
    st = st == ST_OK ? taken : st;
    return st == ST_OK && out->is_list ? pool_config_check_pools(file, out, err) : st;
}

enum status pool_file_parse_all(const struct pool_config_source *sources, size_t n,
                                struct pool_specs *out, struct error *err) {
    struct pool_config_file file = {.name = sources[0].name};
    struct texts texts = {.sources = sources};
    enum status st = ST_OK;
    *out = (struct pool_specs){.n = 0};
    for (; texts.n < n && st == ST_OK; texts.n += st == ST_OK) {
        const struct pool_config_source *source = &sources[texts.n];
        st = doc_parse(DOC_YAML_MULTI, source->name, source->text, &texts.docs[texts.n], err);
    }
    if (st == ST_OK) {
        file.arena = arena_new(NULL, 0);
        st = file.arena ? parse_documents(&file, &texts, out, err)
                        : error_no_memory(err, "the pools of %s", file.name);
    }
    arena_free(file.arena);
    for (size_t i = 0; i < texts.n; i++) {
        doc_free(texts.docs[i]);
    }
    if (st != ST_OK) {
        pool_specs_free(out);
    }
    return st;
}

enum status pool_file_parse(const char *name, struct str text, struct pool_specs *out,
                            struct error *err) {
    struct pool_config_source source = {.name = name, .text = text};
    return pool_file_parse_all(&source, 1, out, err);
}

/* Adds "NAME:PORT" to the DNS plan. */
static enum status add_name(struct pool_spec *spec, struct str text, struct error *err) {
    struct dns_plan_name wanted = {.labels = spec->selector, .n_ports = 1};
    uint16_t port, *copy = arena_alloc(spec->arena, sizeof(*copy));
    if (!dns_target_parse(text, &wanted.name, &port)) {
        return error_set(err, ST_BAD_CONFIG,
                         "\"%.*s\" is no endpoint: expected IP:PORT (10.0.0.1:8000, [::1]:8000) or "
                         "NAME:PORT (models.example:8000)",
                         STR_ARG(text));
    }
    wanted.name = dns_name_copy(spec, wanted.name);
    if (!copy || !wanted.name.ptr) {
        return error_no_memory(err, "the pool's names");
    }
    *copy = port;
    wanted.ports = copy;
    return dns_plan_add(spec, &wanted, err);
}

enum status pool_file_add_endpoint(struct pool_spec *spec, struct str text, struct error *err) {
    struct pool_spec_endpoint wanted = {.labels = spec->selector};
    return endpoint_address_parse(text, &wanted.address)
               ? pool_spec_add_endpoint(spec, &wanted, err)
               : add_name(spec, text, err);
}
