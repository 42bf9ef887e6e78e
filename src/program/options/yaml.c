/* The YAML file of a command: the names, types and ranges of its flags. A key whose flag was given
 * is checked and not used. Switches, and the name of another file, are allowed on the command line
 * only. */
#include <string.h>

#include "core/base/buf.h"
#include "core/base/doc/reader.h"
#include "core/base/str.h"
#include "program/options/options.h"

static const double SECONDS_MAX = 1e9;

/* The settings of a file while they are read. */
struct file_reader {
    struct doc_reader doc;
    struct options *options;
};

/* Takes over the result of option_set_text or option_set_number, whose error has no place. */
static void end_setting(struct doc_reader *doc, const struct doc_node *node, enum status status) {
    struct error why = *doc->err;
    if (status == ST_BAD_CONFIG) {
        doc_reader_fail(doc, node, "%s", why.text);
    } else {
        doc->status = status;
    }
}

static void set_number(struct file_reader *reader, size_t index, const struct doc_node *node,
                       uint64_t value) {
    if (doc_reader_ok(&reader->doc)) {
        end_setting(&reader->doc, node,
                    option_set_number(reader->options, index, value, reader->doc.err));
    }
}

static void set_text(struct file_reader *reader, size_t index, const struct doc_node *node,
                     struct str text) {
    if (doc_reader_ok(&reader->doc)) {
        end_setting(&reader->doc, node,
                    option_set_text(reader->options, index, text.ptr, reader->doc.err));
    }
}

static void read_seconds(struct file_reader *reader, size_t index, const struct doc_node *node) {
    double seconds = 0;
    doc_reader_f64(&reader->doc, node, &seconds);
    if (!(seconds >= 0 && seconds <= SECONDS_MAX)) {
        doc_reader_fail(&reader->doc, node, "expected 0 to %.0f seconds, got %g", SECONDS_MAX,
                        seconds);
        return;
    }
    set_number(reader, index, node, (uint64_t)(seconds * 1e9));
}

static void read_whole(struct file_reader *reader, size_t index, const struct doc_node *node) {
    const struct option *option = &reader->options->set->options[index];
    int64_t max = option->max < INT64_MAX ? (int64_t)option->max : INT64_MAX;
    uint64_t value = 0;
    doc_reader_u64(&reader->doc, node, (int64_t)option->min, max, &value);
    set_number(reader, index, node, value);
}

static void reject_nul(struct doc_reader *reader, const struct doc_node *node, struct str text) {
    if (text.ptr && memchr(text.ptr, '\0', text.len)) {
        doc_reader_fail(reader, node, "a NUL character can't be in this text");
    }
}

static void read_text(struct file_reader *reader, size_t index, const struct doc_node *node) {
    struct str text = {NULL, 0};
    doc_reader_view(&reader->doc, node, &text);
    reject_nul(&reader->doc, node, text);
    doc_reader_dup(&reader->doc, text, &text);
    set_text(reader, index, node, text);
}

/* Prints a scalar as text, so that 3 or true needs no quotes. */
static void print_plain(struct doc_reader *reader, const struct doc_node *node, struct buf *out) {
    yyjson_val *value = node->val;
    switch (json_kind_of(value)) {
    case JSON_STRING:
        reject_nul(reader, node, json_str(value));
        buf_add_str(out, json_str(value));
        return;
    case JSON_BOOL:
        buf_add_str(out, json_bool(value) ? STR("true") : STR("false"));
        return;
    case JSON_UINT:
        buf_add_u64(out, value->uni.u64);
        return;
    case JSON_SINT:
        buf_add_i64(out, value->uni.i64);
        return;
    case JSON_REAL:
        buf_printf(out, "%.17g", value->uni.f64);
        return;
    case JSON_ABSENT:
    case JSON_NULL:
    case JSON_RAW:
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    doc_reader_fail(reader, node,
                    "expected text, a number, true or false, or a list of such values");
}

/* Joins the values of a list with commas. */
static const char *read_pair_value(struct doc_reader *reader, const struct doc_node *node) {
    struct doc_node item = {0};
    struct buf text;
    buf_init(&text, reader->arena, 32);
    if (!doc_is_list(node)) {
        print_plain(reader, node, &text);
    }
    while (doc_is_list(node) && doc_reader_next(reader, node, &item)) {
        if (item.index > 0) {
            buf_add_char(&text, ',');
        }
        print_plain(reader, &item, &text);
    }
    buf_add_char(&text, '\0');
    return text.data;
}

static void read_pairs(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct option_pairs *pairs = out;
    struct doc_node member = {0};
    if (!doc_is_present(node)) {
        return;
    }
    doc_reader_expect_object(reader, node);
    pairs->items = doc_reader_calloc(reader, json_count(node->val), sizeof(*pairs->items));
    while (doc_reader_ok(reader) && doc_next_member(node, &member)) {
        struct str name = {NULL, 0};
        doc_reader_dup(reader, str_of(member.key), &name);
        pairs->items[pairs->n++] =
            (struct option_pair){.name = name.ptr, .value = read_pair_value(reader, &member)};
    }
}

struct model {
    struct str name, path;
    struct option_pairs params;
};

static void read_view(struct doc_reader *reader, const struct doc_node *node, void *out) {
    doc_reader_view(reader, node, out);
}

static const struct doc_member MODEL[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct model, name, struct str, read_view)},
    {"path", MEMBER_CUSTOM_FIELD(struct model, path, struct str, read_view)},
    {"parameters", MEMBER_CUSTOM_FIELD(struct model, params, struct option_pairs, read_pairs)},
    {0}};

/* Reads {name: N, path: P}, which is N=P, with its parameters. */
static void read_model(struct file_reader *reader, size_t index, const struct doc_node *node) {
    struct doc_reader *doc = &reader->doc;
    struct model model = {.name = {NULL, 0}};
    struct str text;
    doc_reader_object(doc, node, MODEL, &model);
    if (model.path.len == 0) {
        doc_reader_fail(doc, node, "a model needs a path: {name: NAME, path: PATH}, or a text");
    }
    text = model.name.ptr
               ? arena_printf(doc->arena, "%.*s=%.*s", STR_ARG(model.name), STR_ARG(model.path))
               : arena_dup(doc->arena, model.path);
    set_text(reader, index, node, text);
    if (doc_reader_ok(doc)) {
        option_set_pairs(reader->options, index, model.params);
    }
}

static void read_list(struct file_reader *reader, size_t index, const struct doc_node *node) {
    bool models = reader->options->set->options[index].type == OPTION_MODELS;
    option_clear(reader->options, index);
    for (struct doc_node item = {0}; doc_reader_next(&reader->doc, node, &item);) {
        (models && doc_is_object(&item) ? read_model : read_text)(reader, index, &item);
    }
}

static void read_bool(struct file_reader *reader, size_t index, const struct doc_node *node) {
    bool value = false;
    doc_reader_bool(&reader->doc, node, &value);
    if (doc_reader_ok(&reader->doc)) {
        option_set_bool(reader->options, index, value);
    }
}

static void read_key(struct file_reader *reader, size_t index, const struct doc_node *node) {
    bool is_text = doc_is_text(node);
    switch (reader->options->set->options[index].type) {
    case OPTION_TEXTS:
    case OPTION_MODELS:
        read_list(reader, index, node);
        return;
    case OPTION_TEXT:
    case OPTION_WORD:
        read_text(reader, index, node);
        return;
    case OPTION_U64:
        read_whole(reader, index, node);
        return;
    case OPTION_BYTES:
    case OPTION_MEMORY:
        (is_text ? read_text : read_whole)(reader, index, node);
        return;
    case OPTION_DURATION:
        (is_text ? read_text : read_seconds)(reader, index, node);
        return;
    case OPTION_BOOL:
        read_bool(reader, index, node);
        return;
    case OPTION_SWITCH:
    case OPTION_CONFIG:
    case OPTION_ARGUMENT:
    case OPTION_OPTIONAL:
        break;
    }
    doc_reader_fail(&reader->doc, node, "this is only for the command line");
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
static void check_key(struct file_reader *reader, size_t index, const struct doc_node *node) {
    const struct option *option = &reader->options->set->options[index];
    char kept[sizeof(struct option_texts)];
    char *place = reader->options->values + option->offset;
    memcpy(kept, place, stored_bytes(option->type));
    read_key(reader, index, node);
    memcpy(place, kept, stored_bytes(option->type));
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

    struct file_reader reader = {
        .doc = {.arena = options->arena, .what = "a value of the configuration file", .err = err},
        .options = options};
    struct doc_node root = doc_root(doc);
    if (!doc_is_present(&root)) {
        return ST_OK; /* an empty file sets nothing */
    }
    doc_reader_expect_object(&reader.doc, &root);
    if (doc_reader_ok(&reader.doc)) {
        reader.doc.status = doc_reject_unknown(&root, names, err);
    }
    for (size_t i = 0; i < set->n_options && doc_reader_ok(&reader.doc); i++) {
        struct doc_node node = doc_get(&root, set->options[i].name);
        if (has_key(&set->options[i]) && doc_is_present(&node)) {
            (options->given[i] ? check_key : read_key)(&reader, i, &node);
        }
    }
    return reader.doc.status;
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
