/* Reads the documents of a configuration file in the order of their dependencies: the list of
 * pools, InferencePools with the ports of the endpoints, our own document, and objects that refer
 * to pools. */
#include "pick/discovery/file/pool_file.h"

#include "core/must/must.h"
#include "pick/config/dns_plan.h"
#include "pick/config/reader.h"

/* ---- documents ------------------------------------------------------------------------------- */

static const struct doc_member ITEM[] = {
    {"name", MEMBER_BY_CALLER}, {"match", MEMBER_BY_CALLER}, {0}};
static const struct doc_member DOCUMENT[] = {{"pools", MEMBER_BY_CALLER}, {0}};

/* Rejects other sections beside the list `pools`: a pool's settings belong into its item. */
static void check_alone(struct doc_reader *reader, const struct doc_node *node) {
    for (const struct doc_member *section = POOL_CONFIG_SECTIONS; section->name; section++) {
        struct doc_node member = doc_get(node, section->name);
        if (member.val) {
            doc_reader_fail(reader, &member,
                            "is for a file of one pool: beside `pools` it stands in each of them");
        }
    }
}

/* Reads a document of our own format: of each pool the settings of its item, or, without a list,
 * those of the document. */
static void read_own(struct pool_config_file *file, const struct doc_node *node) {
    struct doc_node list = doc_get(node, "pools"), item = {0};
    struct pool_config_reader *reader = file->items;
    if (!list.val) {
        doc_reader_members(&reader->doc, node, POOL_CONFIG_SECTIONS, reader->spec);
        file->doc.status = reader->doc.status;
    }
    for (; list.val && doc_reader_next_part(&file->doc, &list, &item); reader++) {
        enum status before = doc_reader_begin_part(&file->doc);
        doc_reader_reject_unknown(&reader->doc, &item, ITEM, POOL_CONFIG_SECTIONS);
        doc_reader_members(&reader->doc, &item, POOL_CONFIG_SECTIONS, reader->spec);
        pool_config_end_pool(file, reader);
        doc_reader_end_part(&file->doc, before);
    }
}

/* Reads only the list of pools and their names. */
static void begin_own(struct pool_config_file *file, const struct doc_node *node) {
    if (file->has_sluice_document) {
        doc_reader_fail(&file->doc, node,
                        "expected one document of the picker's own settings, got a second (an "
                        "object of the API has `apiVersion` and `kind`)");
    }
    file->has_sluice_document = true;
    doc_reader_expect_object(&file->doc, node);
    doc_reader_reject_unknown(&file->doc, node, DOCUMENT, POOL_CONFIG_SECTIONS);
    if (doc_get(node, "pools").val) {
        check_alone(&file->doc, node);
    }
    pool_config_read_pools(file, node);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* The passes over the documents: the list of pools; InferencePools, whose selectors and ports apply
 * to the file's endpoints; our own document; objects that refer to pools. */
enum pass { PASS_LIST, PASS_POOLS, PASS_OWN, PASS_OBJECTS, N_PASSES };

static void read_document(struct pool_config_file *file, const struct doc_node *document,
                          enum pass pass) {
    bool object = pool_config_is_kube_object(document);
    if (object && (pass == PASS_POOLS || pass == PASS_OBJECTS)) {
        pool_config_read_kube_object(file, document, pass == PASS_POOLS);
    } else if (!object && pass == PASS_LIST) {
        begin_own(file, document);
    } else if (!object && pass == PASS_OWN) {
        read_own(file, document);
    }
}

static void read_documents(struct pool_config_file *file, const struct doc *doc, enum pass pass) {
    struct doc_node root = doc_root(doc);
    for (struct doc_node item = {0}; doc_reader_next_part(&file->doc, &root, &item);) {
        struct doc_node document = item;
        document.parent = NULL; /* error texts print paths from the document on */
        if (doc_is_present(&document)) {
            enum status before = doc_reader_begin_part(&file->doc);
            read_document(file, &document, pass);
            doc_reader_end_part(&file->doc, before);
        }
    }
}

/* ---- a whole file ---------------------------------------------------------------------------- */

static void end_pool(struct pool_config_file *file, struct pool_config_reader *reader) {
    reader->spec->strict_models = reader->unknown == POOL_CONFIG_UNKNOWN_UNSET
                                      ? reader->has_models
                                      : reader->unknown == POOL_CONFIG_UNKNOWN_REFUSE;
    reader->spec->strict_models_set = reader->unknown != POOL_CONFIG_UNKNOWN_UNSET;
    pool_config_check_unique(reader, &reader->endpoints, "endpoint");
    pool_config_check_unique(reader, &reader->models, "model");
    pool_config_check_unique(reader, &reader->objectives, "objective");
    pool_config_check_unique(reader, &reader->rewrites, "rewrite of the model");
    pool_config_check_unique(reader, &reader->split, "model");
    pool_config_check_disjoint(reader, &reader->split, &reader->rewrites);
    pool_config_end_pool(file, reader);
}

/* The texts that are read as one file. */
struct texts {
    const struct pool_config_source *sources;
    struct doc *docs[POOL_CONFIG_MAX_SOURCES]; /* NULL: skipped */
    size_t n;
};

static void read_pass(struct pool_config_file *file, struct texts *texts, enum pass pass) {
    for (size_t i = 0; i < texts->n && doc_reader_ok(&file->doc); i++) {
        /* A default is left out after a document of our own format. */
        if (pass == PASS_LIST && texts->sources[i].is_default && file->has_sluice_document) {
            doc_free(texts->docs[i]);
            texts->docs[i] = NULL;
        }
        if (texts->docs[i]) {
            read_documents(file, texts->docs[i], pass);
        }
        if (pass == PASS_OWN && texts->docs[i] && texts->sources[i].is_default) {
            file->items[0].metrics_given = false;
        }
    }
    if (doc_reader_ok(&file->doc) && pass == PASS_LIST &&
        !file->items) { /* the file has only objects, or nothing */
        pool_config_read_pools(file, &(struct doc_node){.doc = texts->docs[0]});
    }
}

/* Moves the readers' specs into the result, after errors, too. */
static void take_specs(struct pool_config_file *file, struct pool_specs *out) {
    out->is_list = file->by_name != NULL;
    for (size_t i = 0; i < file->n; i++) {
        struct pool_spec *spec = file->items[i].spec;
        if (doc_reader_ok(&file->doc)) {
            pool_specs_add(out, spec);
        } else {
            pool_spec_free(spec);
        }
    }
}

/* The list of pools is what the other passes need. */
static void read_passes(struct pool_config_file *file, struct texts *texts) {
    read_pass(file, texts, PASS_LIST);
    bool has_pools = doc_reader_ok(&file->doc);
    for (int pass = PASS_LIST + 1; has_pools && pass < N_PASSES; pass++) {
        enum status before = doc_reader_begin_part(&file->doc);
        read_pass(file, texts, (enum pass)pass);
        doc_reader_end_part(&file->doc, before);
    }
}

enum status pool_file_parse_all(const struct pool_config_source *sources, size_t n,
                                struct doc_errors *errors, struct pool_specs *out,
                                struct error *err) {
    struct pool_config_file file = {.name = sources[0].name};
    struct texts texts = {.sources = sources};
    enum status st = ST_OK;
    *out = (struct pool_specs){.n = 0};
    for (; texts.n < n && st == ST_OK; texts.n += st == ST_OK) {
        const struct pool_config_source *source = &sources[texts.n];
        st = doc_parse(DOC_YAML_MULTI, source->name, source->text, &texts.docs[texts.n], err);
    }
    if (st == ST_OK) {
        file.arena = must_arena_new("the pool's configuration");
        file.doc = (struct doc_reader){.arena = file.arena, .err = err, .errors = errors};
        read_passes(&file, &texts);
        for (size_t i = 0; i < file.n && doc_reader_ok(&file.doc); i++) {
            end_pool(&file, &file.items[i]);
        }
        take_specs(&file, out);
        st = file.doc.status;
    }
    if (st == ST_OK && out->is_list) {
        st = pool_config_check_pools(&file, out, err);
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
    return pool_file_parse_all(&source, 1, NULL, out, err);
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
    *copy = port;
    wanted.ports = copy;
    return dns_plan_add(spec, &wanted, err);
}

enum status pool_file_add_endpoint(struct pool_spec *spec, struct str text, struct error *err) {
    struct pool_spec_endpoint wanted = {.labels = spec->selector};
    if (!endpoint_address_parse(text, &wanted.address)) {
        return add_name(spec, text, err);
    }
    pool_spec_add_endpoint(spec, &wanted);
    return ST_OK;
}
