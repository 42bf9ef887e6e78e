/* The YAML file of a command: the names, types and ranges of its flags. A key whose flag was given
 * is checked and not used. Switches, and the name of another file, are allowed on the command line
 * only. */
#include <string.h>

#include "core/base/buf.h"
#include "core/base/str.h"
#include "program/options/options.h"

static const double SECONDS_MAX = 1e9;

/* Adds file, line and key to the error of option_set_text or option_set_number. */
static enum status error_add_location(const struct doc_node *node, enum status status,
                                      struct error *err) {
    struct error why = *err;
    return status == ST_BAD_CONFIG ? doc_error(node, err, "%s", why.text) : status;
}

static enum status read_seconds(struct options *options, size_t index, const struct doc_node *node,
                                struct error *err) {
    double seconds = 0;
    enum status status = doc_read_f64(node, &seconds, err);
    if (status != ST_OK) {
        return status;
    }
    if (!(seconds >= 0 && seconds <= SECONDS_MAX)) {
        return doc_error(node, err, "expected 0 to %.0f seconds, got %g", SECONDS_MAX, seconds);
    }
    return error_add_location(
        node, option_set_number(options, index, (uint64_t)(seconds * 1e9), err), err);
}

static enum status read_whole(struct options *options, size_t index, const struct doc_node *node,
                              struct error *err) {
    const struct option *option = &options->set->options[index];
    int64_t max = option->max < INT64_MAX ? (int64_t)option->max : INT64_MAX;
    int64_t value = 0;
    enum status status = doc_read_i64(node, (int64_t)option->min, max, &value, err);
    if (status != ST_OK) {
        return status;
    }
    return error_add_location(node, option_set_number(options, index, (uint64_t)value, err), err);
}

static enum status read_text(struct options *options, size_t index, const struct doc_node *node,
                             struct error *err) {
    struct str text = {0};
    enum status status = doc_read_str(node, &text, err);
    if (status != ST_OK) {
        return status;
    }
    if (memchr(text.ptr, '\0', text.len)) {
        return doc_error(node, err, "a NUL character can't be in this text");
    }
    text = arena_dup(options->arena, text);
    if (!text.ptr) {
        return error_no_memory(err, "a value of the configuration file");
    }
    return error_add_location(node, option_set_text(options, index, text.ptr, err), err);
}

/* Prints a scalar as text, so that 3 or true needs no quotes. */
static enum status print_plain(struct buf *out, const struct doc_node *node, struct error *err) {
    yyjson_val *value = node->val;
    switch (json_kind_of(value)) {
    case JSON_STRING:
        if (memchr(json_str(value).ptr, '\0', json_str(value).len)) {
            return doc_error(node, err, "a NUL character can't be in this text");
        }
        buf_add_str(out, json_str(value));
        return ST_OK;
    case JSON_BOOL:
        buf_add_str(out, json_bool(value) ? STR("true") : STR("false"));
        return ST_OK;
    case JSON_UINT:
        buf_add_u64(out, value->uni.u64);
        return ST_OK;
    case JSON_SINT:
        buf_add_i64(out, value->uni.i64);
        return ST_OK;
    case JSON_REAL:
        buf_printf(out, "%.17g", value->uni.f64);
        return ST_OK;
    case JSON_ABSENT:
    case JSON_NULL:
    case JSON_RAW:
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    return doc_error(node, err, "expected text, a number, true or false, or a list of such values");
}

/* Joins the values of a list with commas. */
static enum status read_pair_value(struct arena *arena, const struct doc_node *node,
                                   const char **out, struct error *err) {
    struct buf text;
    buf_init(&text, arena, 32);
    bool list = doc_is_list(node);
    enum status status = list ? ST_OK : print_plain(&text, node, err);
    for (size_t i = 0; list && i < doc_count(node) && status == ST_OK; i++) {
        struct doc_node item = doc_at(node, i);
        if (i > 0) {
            buf_add_char(&text, ',');
        }
        status = print_plain(&text, &item, err);
    }
    buf_add_char(&text, '\0');
    *out = text.data;
    return status == ST_OK && text.failed
               ? error_no_memory(err, "a value of the configuration file")
               : status;
}

static enum status read_pairs(struct arena *arena, const struct doc_node *node,
                              struct option_pairs *out, struct error *err) {
    if (!doc_is_present(node)) {
        return ST_OK;
    }
    enum status status = doc_expect_object(node, err);
    if (status != ST_OK) {
        return status;
    }
    out->items = arena_calloc(arena, json_count(node->val), sizeof(*out->items));
    if (!out->items) {
        return error_no_memory(err, "a value of the configuration file");
    }
    struct doc_node member = {0};
    while (doc_next_member(node, &member)) {
        struct str name = arena_dup(arena, str_of(member.key));
        if (!name.ptr) {
            return error_no_memory(err, "a value of the configuration file");
        }
        status = read_pair_value(arena, &member, &out->items[out->n].value, err);
        if (status != ST_OK) {
            return status;
        }
        out->items[out->n++].name = name.ptr;
    }
    return ST_OK;
}

/* Reads {name: N, path: P}, which is N=P, with its parameters. */
static enum status read_model(struct options *options, size_t index, const struct doc_node *node,
                              struct error *err) {
    static const char *const names[] = {"name", "path", "parameters", NULL};
    struct doc_node name_node = doc_get(node, "name"), path_node = doc_get(node, "path");
    struct doc_node params_node = doc_get(node, "parameters");
    struct str name = {0}, path = {0};
    struct option_pairs params = {0};
    enum status status = doc_reject_unknown(node, names, err);
    if (status == ST_OK) {
        status = doc_read_str(&name_node, &name, err);
    }
    if (status == ST_OK) {
        status = doc_read_str(&path_node, &path, err);
    }
    if (status == ST_OK) {
        status = read_pairs(options->arena, &params_node, &params, err);
    }
    if (status == ST_OK && path.len == 0) {
        status = doc_error(node, err, "a model needs a path: {name: NAME, path: PATH}, or a text");
    }
    if (status != ST_OK) {
        return status;
    }
    struct str text = name.ptr
                          ? arena_printf(options->arena, "%.*s=%.*s", STR_ARG(name), STR_ARG(path))
                          : arena_dup(options->arena, path);
    if (!text.ptr) {
        return error_no_memory(err, "a value of the configuration file");
    }
    status = error_add_location(node, option_set_text(options, index, text.ptr, err), err);
    if (status == ST_OK) {
        option_set_pairs(options, index, params);
    }
    return status;
}

static enum status read_list(struct options *options, size_t index, const struct doc_node *node,
                             struct error *err) {
    enum status status = ST_OK;
    bool models = options->set->options[index].type == OPTION_MODELS;
    option_clear(options, index);
    for (size_t i = 0; i < doc_count(node) && status == ST_OK; i++) {
        struct doc_node item = doc_at(node, i);
        status = models && doc_is_object(&item) ? read_model(options, index, &item, err)
                                                : read_text(options, index, &item, err);
    }
    return status;
}

static enum status read_bool(struct options *options, size_t index, const struct doc_node *node,
                             struct error *err) {
    bool value = false;
    enum status status = doc_read_bool(node, &value, err);
    if (status == ST_OK) {
        option_set_bool(options, index, value);
    }
    return status;
}

static enum status read_key(struct options *options, size_t index, const struct doc_node *node,
                            struct error *err) {
    bool is_text = doc_is_text(node);
    switch (options->set->options[index].type) {
    case OPTION_TEXTS:
    case OPTION_MODELS:
        return read_list(options, index, node, err);
    case OPTION_TEXT:
    case OPTION_WORD:
        return read_text(options, index, node, err);
    case OPTION_U64:
        return read_whole(options, index, node, err);
    case OPTION_BYTES:
    case OPTION_MEMORY:
        return (is_text ? read_text : read_whole)(options, index, node, err);
    case OPTION_DURATION:
        return (is_text ? read_text : read_seconds)(options, index, node, err);
    case OPTION_BOOL:
        return read_bool(options, index, node, err);
    case OPTION_SWITCH:
    case OPTION_CONFIG:
    case OPTION_ARGUMENT:
    case OPTION_OPTIONAL:
        break;
    }
    return doc_error(node, err, "this is only for the command line");
}

static size_t stored_bytes(enum option_type type) {
    static const size_t sizes[] = {
        [OPTION_TEXT] = sizeof(OPTION_STORE_TEXT),
        [OPTION_TEXTS] = sizeof(OPTION_STORE_TEXTS),
        [OPTION_U64] = sizeof(OPTION_STORE_U64),
        [OPTION_BYTES] = sizeof(OPTION_STORE_BYTES),
        [OPTION_MEMORY] = sizeof(OPTION_STORE_MEMORY),
        [OPTION_DURATION] = sizeof(OPTION_STORE_DURATION),
        [OPTION_BOOL] = sizeof(OPTION_STORE_BOOL),
        [OPTION_WORD] = sizeof(OPTION_STORE_WORD),
        [OPTION_MODELS] = sizeof(OPTION_STORE_MODELS),
    };
    return sizes[type];
}

/* Checks a key whose flag was given: it must be valid, and is not stored. */
static enum status check_key(struct options *options, size_t index, const struct doc_node *node,
                             struct error *err) {
    const struct option *option = &options->set->options[index];
    char kept[sizeof(struct option_texts)];
    char *place = options->values + option->offset;
    memcpy(kept, place, stored_bytes(option->type));
    enum status status = read_key(options, index, node, err);
    memcpy(place, kept, stored_bytes(option->type));
    return status;
}

static bool has_key(const struct option *option) {
    return option->type != OPTION_SWITCH && option->type != OPTION_CONFIG &&
           option->type != OPTION_ARGUMENT && option->type != OPTION_OPTIONAL;
}

enum status options_read_doc(struct options *options, const struct doc *doc, struct error *err) {
    const struct option_set *set = options->set;
    const char *names[OPTIONS_MAX + 1];
    size_t n_names = 0;
    for (size_t i = 0; i < set->n_options; i++) {
        if (has_key(&set->options[i])) {
            names[n_names++] = set->options[i].name;
        }
    }
    names[n_names] = NULL;

    struct doc_node root = doc_root(doc);
    enum status status = ST_OK;
    if (doc_is_present(&root)) { /* an empty file sets nothing */
        status = doc_expect_object(&root, err);
    }
    if (status == ST_OK && doc_is_present(&root)) {
        status = doc_reject_unknown(&root, names, err);
    }
    for (size_t i = 0; i < set->n_options && status == ST_OK; i++) {
        struct doc_node node = doc_get(&root, set->options[i].name);
        if (has_key(&set->options[i]) && doc_is_present(&node)) {
            status = (options->given[i] ? check_key : read_key)(options, i, &node, err);
        }
    }
    return status;
}

enum status options_read(struct options *options, int argc, char **argv, struct error *err) {
    enum status status = options_read_args(options, argc, argv, err);
    for (size_t i = 0; i < options->set->n_options && status == ST_OK; i++) {
        const struct option *option = &options->set->options[i];
        if (option->type != OPTION_CONFIG) {
            continue;
        }
        const char *path = *(const char **)(void *)(options->values + option->offset);
        struct doc *doc = NULL;
        if (path) {
            status = doc_load(DOC_YAML, path, &doc, err);
        }
        if (path && status == ST_OK) {
            status = options_read_doc(options, doc, err);
        }
        doc_free(doc);
    }
    return status;
}
