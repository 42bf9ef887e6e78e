/* The documents of a file, in the order in which they need each other: an InferencePool says which
 * ports the endpoints have and what the others refer to. */
#include "discover/pool_file.h"

#include "discover/reading.h"

static const char *const SECTIONS[] = {
    "endpoints",  "ports",  "selector", "models",      "unknown_models", "objectives", "rewrites",
    "saturation", "health", "protocol", "refused_for", "profile",        "metrics",    NULL};

/* ---- documents ------------------------------------------------------------------------------- */

static enum status read_profile(struct reading *reading, const struct doc_node *node,
                                struct error *err) {
    static const char *const names[] = {"plugins", "schedulingProfiles", NULL};
    struct doc_node profile = doc_get(node, "profile");
    if (!doc_present(&profile)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(&profile, err);
    if (st == ST_OK) {
        st = doc_only(&profile, names, err);
    }
    return st == ST_OK ? reading_profile(reading, &profile, err) : st;
}

/* A document of Sluice's own form. */
static enum status read_own(struct reading *reading, const struct doc_node *node,
                            struct error *err) {
    if (reading->has_own) {
        return doc_error(node, err,
                         "expected one document of the picker's own settings, got a second (an "
                         "object of the API has `apiVersion` and `kind`)");
    }
    reading->has_own = true;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_only(node, SECTIONS, err);
    }
    if (st == ST_OK) {
        st = reading_endpoints(reading, node, err);
    }
    if (st == ST_OK) {
        st = reading_models(reading, node, err);
    }
    if (st == ST_OK) {
        st = reading_settings(reading, node, err);
    }
    if (st == ST_OK) {
        st = reading_metrics(reading, node, err);
    }
    return st == ST_OK ? read_profile(reading, node, err) : st;
}

enum pass { PASS_POOLS, PASS_OWN, PASS_OBJECTS, N_PASSES };

static enum status read_document(struct reading *reading, const struct doc_node *node,
                                 enum pass pass, struct error *err) {
    bool object = reading_is_object(node);
    switch (pass) {
    case PASS_OWN:
        return object ? ST_OK : read_own(reading, node, err);
    case PASS_POOLS:
    case PASS_OBJECTS:
        return object ? reading_object(reading, node, pass == PASS_POOLS, err) : ST_OK;
    case N_PASSES:
        break;
    }
    return ST_OK;
}

static enum status read_documents(struct reading *reading, const struct doc *doc, enum pass pass,
                                  struct error *err) {
    struct doc_node root = doc_root(doc);
    enum status st = ST_OK;
    for (struct doc_node item = {0}; st == ST_OK && doc_each(&root, &item);) {
        struct doc_node document = item;
        document.parent = NULL; /* paths in messages begin in the document */
        if (doc_present(&document)) {
            st = read_document(reading, &document, pass, err);
        }
    }
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum status check_names(struct reading *reading, struct error *err) {
    enum status st = reading_check_once(reading, &reading->endpoints, "endpoint", err);
    if (st == ST_OK) {
        st = reading_check_once(reading, &reading->models, "model", err);
    }
    if (st == ST_OK) {
        st = reading_check_once(reading, &reading->objectives, "objective", err);
    }
    if (st == ST_OK) {
        st = reading_check_once(reading, &reading->rewrites, "rewrite of the model", err);
    }
    if (st == ST_OK) {
        st = reading_check_once(reading, &reading->split, "model", err);
    }
    return st == ST_OK ? reading_check_apart(reading, &reading->split, &reading->rewrites, err)
                       : st;
}

static enum status read_all(struct reading *reading, const struct doc *doc, struct error *err) {
    enum status st = ST_OK;
    for (int pass = 0; pass < N_PASSES && st == ST_OK; pass++) {
        st = read_documents(reading, doc, (enum pass)pass, err);
    }
    if (st == ST_OK) {
        st = check_names(reading, err);
    }
    reading->spec->strict_models = reading->unknown == UNKNOWN_UNSAID
                                       ? reading->has_models
                                       : reading->unknown == UNKNOWN_REFUSE;
    return st;
}

enum status pool_file_parse(const char *name, struct str text, struct pool_spec **out,
                            struct error *err) {
    struct doc *doc;
    struct reading reading = {.file = name};
    enum status st = doc_parse(DOC_YAML_MANY, name, text, &doc, err);
    if (st != ST_OK) {
        return st;
    }
    st = pool_spec_new(&reading.spec, err);
    reading.arena = arena_new(NULL, 0);
    if (st == ST_OK) {
        st = reading.arena ? read_all(&reading, doc, err) : reading_no_memory(&reading, err);
    }
    arena_free(reading.arena);
    doc_free(doc);
    if (st == ST_OK) {
        *out = reading.spec;
    } else {
        pool_spec_free(reading.spec);
    }
    return st;
}

enum status pool_file_add_endpoint(struct pool_spec *spec, struct str text, struct error *err) {
    struct pool_wanted wanted = {.labels = spec->selector};
    if (!endpoint_address_parse(text, &wanted.address)) {
        return error_set(err, ST_BAD_CONFIG,
                         "\"%.*s\" is no endpoint: expected IP:PORT (10.0.0.1:8000, [::1]:8000)",
                         STR_ARG(text));
    }
    return pool_spec_add_endpoint(spec, &wanted, err);
}
