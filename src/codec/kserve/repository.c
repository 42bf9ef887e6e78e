/* Model repository requests, over HTTP and gRPC. */
#include "codec/kserve/repository.h"

#include <string.h>

#include "codec/json/tree.h"
#include "codec/kserve/grpc/fields.h"
#include "core/base/base64.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"

/* ---- HTTP ------------------------------------------------------------------------------------ */

/* Parses the body; `root` is NULL for an empty one. */
static enum status parse_body(struct json_tree *tree, struct arena *arena, struct str body,
                              const struct json_limits *limits, struct error *err) {
    *tree = (struct json_tree){.arena = arena};
    if (str_trim(body).len == 0) {
        return ST_OK;
    }
    return json_tree_parse_request(tree, arena, body, limits, err);
}

/* *out: the value of "parameters", an object; NULL if absent. */
static enum status find_parameters(const struct json_tree *tree, yyjson_val **out,
                                   struct error *err) {
    *out = json_given(json_member(tree->root, "parameters"));
    return *out ? json_expect_object(tree, *out, err) : ST_OK;
}

enum status v2_repository_index_decode(struct arena *arena, struct str body,
                                       const struct json_limits *limits,
                                       struct v2_repository_request *out, struct error *err) {
    struct json_tree tree;
    *out = (struct v2_repository_request){.ready = false};
    enum status st = parse_body(&tree, arena, body, limits, err);
    yyjson_val *ready = st == ST_OK ? json_given(json_member(tree.root, "ready")) : NULL;
    return ready ? json_read_bool(&tree, ready, &out->ready, err) : st;
}

/* ---- load ------------------------------------------------------------------------------------ */

static enum status add_file(const struct json_tree *tree, struct str name, struct str text,
                            size_t total, struct v2_repository_request *out, struct error *err) {
    struct v2_repository_file *files =
        json_array_grow(tree->arena, (void *)out->files, out->n_files, total, sizeof(*files));
    if (!files) {
        return error_no_memory(err, "the parameters");
    }
    struct v2_repository_file *file = &files[out->n_files++];
    out->files = files;
    file->path = str_make(name.ptr + 5, name.len - 5);
    size_t bad;
    enum status st = base64_parse(tree->arena, text, &file->data, &bad);
    if (st == ST_NO_MEMORY) {
        return error_no_memory(err, "a file of the parameters");
    }
    return st == ST_OK
               ? ST_OK
               : error_set(err, ST_BAD_FIELD, "parameters: \"%.*s\" is not base64", STR_ARG(name));
}

/* A configuration that is an object counts as its text. */
static enum status print_config(const struct json_tree *tree, yyjson_val *value, struct str *out,
                                struct error *err) {
    struct buf text;
    struct json_writer json = {.out = &text};
    buf_init(&text, tree->arena, 1024);
    json_write_value(&json, JSON_ELEMENT, value);
    *out = buf_str(&text);
    return text.failed ? error_no_memory(err, "the configuration") : ST_OK;
}

static enum status error_version(struct error *err) {
    return error_set(err, ST_BAD_FIELD, "parameters: expected a version's number for \"version\"");
}

/* A number from 1 on, or the text of one. */
static enum status read_version(yyjson_val *value, uint64_t *out, struct error *err) {
    int64_t whole = 0;
    bool ok = json_is_string(value) ? num_parse_u64(json_str(value), out)
                                    : json_get_i64(value, 1, INT64_MAX, &whole);
    *out = whole > 0 ? (uint64_t)whole : *out;
    return ok && *out > 0 ? ST_OK : error_version(err);
}

static enum status check_alone(const struct v2_repository_request *request, struct error *err) {
    return request->version > 0 && (request->config.ptr || request->n_files > 0)
               ? error_set(err, ST_BAD_FIELD,
                           "parameters: \"version\" stands alone: it is loaded by the "
                           "configuration of the model")
               : ST_OK;
}

static enum status read_parameter(const struct json_tree *tree, struct str name, yyjson_val *value,
                                  size_t total, struct v2_repository_request *out,
                                  struct error *err) {
    bool is_config = str_is(name, "config"), is_file = str_starts_with(name, STR("file:")),
         is_version = str_is(name, "version");
    if (!is_config && !is_file && !is_version) {
        return error_set(err, ST_BAD_FIELD,
                         "parameters: expected config, version and file:VERSION/NAME, got \"%.*s\"",
                         STR_ARG(name));
    }
    if (json_is_null(value)) {
        return ST_OK;
    }
    if (is_version) {
        return read_version(value, &out->version, err);
    }
    if (is_config && json_is_object(value)) {
        return print_config(tree, value, &out->config, err);
    }
    if (!json_is_string(value)) {
        char got[JSON_DESCRIBED_BYTES];
        return error_set(err, ST_BAD_FIELD, "parameters: expected text for \"%.*s\", got %s",
                         STR_ARG(name), json_describe(value, JSON_WORDS, got));
    }
    if (is_config) {
        out->config = json_str(value);
        return ST_OK;
    }
    return add_file(tree, name, json_str(value), total, out, err);
}

enum status v2_repository_load_decode(struct arena *arena, struct str body,
                                      const struct json_limits *limits,
                                      struct v2_repository_request *out, struct error *err) {
    struct json_tree tree;
    yyjson_val *parameters = NULL;
    *out = (struct v2_repository_request){.ready = false};
    enum status st = parse_body(&tree, arena, body, limits, err);
    if (st == ST_OK) {
        st = find_parameters(&tree, &parameters, err);
    }
    size_t n = st == ST_OK && parameters ? json_count(parameters) : 0;
    yyjson_val *key = n > 0 ? json_first(parameters) : NULL;
    for (size_t i = 0; i < n && st == ST_OK; i++, key = json_next(json_value(key))) {
        st = read_parameter(&tree, json_str(key), json_value(key), n, out, err);
    }
    return st == ST_OK ? check_alone(out, err) : st;
}

/* ---- unload ---------------------------------------------------------------------------------- */

enum status v2_repository_unload_decode(struct arena *arena, struct str body,
                                        const struct json_limits *limits,
                                        struct v2_repository_request *out, struct error *err) {
    struct json_tree tree;
    yyjson_val *parameters = NULL;
    *out = (struct v2_repository_request){.ready = false};
    enum status st = parse_body(&tree, arena, body, limits, err);
    if (st == ST_OK) {
        st = find_parameters(&tree, &parameters, err);
    }
    yyjson_val *value =
        st == ST_OK ? json_given(json_member(parameters, "unload_dependents")) : NULL;
    if (value) {
        st = json_read_bool(&tree, value, &out->unload_dependents, err);
    }
    value = st == ST_OK ? json_given(json_member(parameters, "version")) : NULL;
    return value ? read_version(value, &out->version, err) : st;
}

/* ---- SageMaker's load ------------------------------------------------------------------------ */

static enum status read_text(const struct json_tree *tree, const char *name, struct str *out,
                             struct error *err) {
    yyjson_val *value = json_member(tree->root, name);
    return value ? json_read_string(tree, value, out, err)
                 : json_error_missing(tree, tree->root, name, "text", err);
}

enum status multi_model_load_decode(struct arena *arena, struct str body,
                                    const struct json_limits *limits, struct str *name,
                                    struct str *url, struct error *err) {
    struct json_tree tree = {.arena = arena};
    enum status st = json_tree_parse_request(&tree, arena, body, limits, err);
    if (st == ST_OK) {
        st = read_text(&tree, "model_name", name, err);
    }
    return st == ST_OK ? read_text(&tree, "url", url, err) : st;
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

/* RepositoryIndexRequest has `ready` in the field that is the model's name in others. */
enum { REPOSITORY = 1, READY = 2, MODEL = 2, PARAMETERS = 3 };
/* ModelRepositoryParameter */
enum { BOOL = 1, INT64 = 2, STRING = 3, BYTES = 4 };

static enum status reject_repository_name(const struct pb_field *field, struct error *err) {
    struct str name = {NULL, 0};
    enum status st = pb_get_string(field, "repository_name", &name, err);
    return st == ST_OK && name.len > 0
               ? error_set(err, ST_UNSUPPORTED, "repository_name: not supported")
               : st;
}

enum status v2_grpc_repository_index_decode(struct str message, struct v2_repository_request *out,
                                            struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *out = (struct v2_repository_request){.ready = false};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == REPOSITORY) {
            st = reject_repository_name(&field, err);
        } else if (field.number == READY && field.type == PB_VARINT) {
            out->ready = field.value != 0;
        }
    }
    return st == ST_OK && reader.error_text
               ? pb_reader_error(&reader, "RepositoryIndexRequest", err)
               : st;
}

/* ---- parameters ------------------------------------------------------------------------------ */

struct entry {
    struct str key;
    uint32_t kind;    /* BOOL to BYTES; 0: none */
    uint64_t number;  /* of INT64 */
    struct str bytes; /* of STRING and BYTES */
    bool boolean;     /* of BOOL */
};

static enum status read_value(struct str message, struct entry *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        bool of_bytes = field.number == STRING || field.number == BYTES;
        if (field.number >= BOOL && field.number <= BYTES) {
            if (field.type != (of_bytes ? PB_BYTES : PB_VARINT)) {
                return error_set(err, ST_BAD_FIELD, "parameters: \"%.*s\" has a wrong type",
                                 STR_ARG(out->key));
            }
            out->kind = field.number;
            out->bytes = field.bytes;
            out->number = field.value;
            out->boolean = field.value != 0;
        }
    }
    return reader.error_text ? pb_reader_error(&reader, "ModelRepositoryParameter", err) : ST_OK;
}

static enum status wrong_kind(const struct entry *entry, const char *expected, struct error *err) {
    return error_set(err, ST_BAD_FIELD, "parameters: expected %s for \"%.*s\"", expected,
                     STR_ARG(entry->key));
}

/* ---- load and unload ------------------------------------------------------------------------- */

enum { MAX_FILES = 256, MAX_ENTRIES = 4096 /* of repeated ones the last counts */ };

/* Handles one parameter. `files` has MAX_FILES + 1 elements. */
typedef enum status entry_handler(const struct entry *entry, struct v2_repository_file *files,
                                  struct v2_repository_request *out, struct error *err);

/* RepositoryModelLoadRequest and RepositoryModelUnloadRequest. */
static enum status decode_model_request(struct str message, const char *what,
                                        entry_handler *handle_entry,
                                        struct v2_repository_file *files,
                                        struct v2_repository_request *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    size_t n_entries = 0;
    *out = (struct v2_repository_request){.model = STR(""), .files = files};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == REPOSITORY) {
            st = reject_repository_name(&field, err);
        } else if (field.number == MODEL) {
            st = pb_get_string(&field, "model_name", &out->model, err);
        } else if (field.number == PARAMETERS) {
            struct str value;
            struct entry entry = {.key = STR("")};
            st = ++n_entries <= MAX_ENTRIES
                     ? v2_grpc_get_map_entry(&field, "parameters", &entry.key, &value, err)
                     : error_set(err, ST_BAD_FIELD, "parameters: more than %d", MAX_ENTRIES);
            st = st == ST_OK ? read_value(value, &entry, err) : st;
            st = st == ST_OK ? handle_entry(&entry, files, out, err) : st;
        }
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, what, err) : st;
}

static enum status read_version_entry(const struct entry *entry, uint64_t *out, struct error *err) {
    bool ok = entry->kind == STRING ? num_parse_u64(entry->bytes, out) : entry->kind == INT64;
    *out = entry->kind == INT64 ? entry->number : *out;
    return ok && *out > 0 && *out <= INT64_MAX ? ST_OK : error_version(err);
}

static enum status handle_load_entry(const struct entry *entry, struct v2_repository_file *files,
                                     struct v2_repository_request *out, struct error *err) {
    if (str_is(entry->key, "config")) {
        out->config = entry->bytes;
        return entry->kind == STRING ? ST_OK : wrong_kind(entry, "string_param", err);
    }
    if (str_is(entry->key, "version")) {
        return read_version_entry(entry, &out->version, err);
    }
    if (!str_starts_with(entry->key, STR("file:"))) {
        return error_set(err, ST_BAD_FIELD,
                         "parameters: expected config, version and file:VERSION/NAME, got \"%.*s\"",
                         STR_ARG(entry->key));
    }
    if (entry->kind != BYTES) {
        return wrong_kind(entry, "bytes_param", err);
    }
    struct str path = str_make(entry->key.ptr + 5, entry->key.len - 5);
    size_t i = 0;
    while (i < out->n_files && !str_eq(files[i].path, path)) {
        i++; /* of a repeated file the last counts */
    }
    files[i] = (struct v2_repository_file){path, entry->bytes};
    out->n_files += i == out->n_files;
    return out->n_files <= MAX_FILES
               ? ST_OK
               : error_set(err, ST_BAD_FIELD, "parameters: more than %d files", MAX_FILES);
}

static enum status handle_unload_entry(const struct entry *entry, struct v2_repository_file *files,
                                       struct v2_repository_request *out, struct error *err) {
    (void)files;
    if (str_is(entry->key, "version")) {
        return read_version_entry(entry, &out->version, err);
    }
    if (!str_is(entry->key, "unload_dependents")) {
        return ST_OK;
    }
    out->unload_dependents = entry->boolean;
    return entry->kind == BOOL ? ST_OK : wrong_kind(entry, "bool_param", err);
}

enum status v2_grpc_repository_load_decode(struct arena *arena, struct str message,
                                           struct v2_repository_request *out, struct error *err) {
    struct v2_repository_file *files = arena_calloc(arena, MAX_FILES + 1, sizeof(*files));
    enum status st = files ? decode_model_request(message, "RepositoryModelLoadRequest",
                                                  handle_load_entry, files, out, err)
                           : error_no_memory(err, "the parameters");
    return st == ST_OK ? check_alone(out, err) : st;
}

enum status v2_grpc_repository_unload_decode(struct str message, struct v2_repository_request *out,
                                             struct error *err) {
    return decode_model_request(message, "RepositoryModelUnloadRequest", handle_unload_entry, NULL,
                                out, err);
}

/* ---- the model's configuration --------------------------------------------------------------- */

/* From proto3's JSON mapping to the form of protobuf's text format, value by value. Fields are
 * recognized by name alone: no name has two types in ModelConfig. */

enum { MAX_DEPTH = 60 }; /* core/base/doc/doc.h allows 64, and maps gain a level */

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

static const char *const MAPS[] = {"parameters", "inputs",     "priority_queue_policy",
                                   "input_map",  "output_map", NULL};

static const char *const NUMBERS[] = {"dims",
                                      "shape",
                                      "versions",
                                      "model_version",
                                      "max_queue_delay_microseconds",
                                      "max_sequence_idle_microseconds",
                                      "priority_levels",
                                      "default_priority_level",
                                      "default_timeout_microseconds",
                                      NULL};

/* Writes the value of the field `name`, NULL for values of maps, in the other form. `depth` is that
 * of the value. Returns: false when nested too deep. */
static bool rewrite(struct json_writer *to, yyjson_val *val, const char *name, unsigned depth);

/* Text that is a whole number becomes a number. */
static void rewrite_number(struct json_writer *to, const char *name, yyjson_val *val) {
    int64_t number;
    if (num_parse_i64(json_text(val), &number)) {
        json_write_i64(to, name, number);
    } else {
        json_write_value(to, name, val);
    }
}

/* {"NAME": VALUE} becomes [{"key": "NAME", "value": VALUE}]. */
static bool rewrite_map(struct json_writer *to, yyjson_val *map, bool is_numbered, unsigned depth) {
    struct json_iter entry = json_members(map);
    bool good = true;
    json_write_open(to, JSON_ELEMENT, '[');
    while (good && json_iter_next(&entry)) {
        json_write_open(to, JSON_ELEMENT, '{');
        if (is_numbered) {
            rewrite_number(to, "key", json_key(entry.value));
        } else {
            json_write_string(to, "key", entry.name);
        }
        json_write_key(to, "value");
        good = rewrite(to, entry.value, NULL, depth);
        json_write_close(to, '}');
    }
    json_write_close(to, ']');
    return good;
}

static bool rewrite_object(struct json_writer *to, yyjson_val *object, unsigned depth) {
    struct json_iter member = json_members(object);
    bool good = true;
    json_write_open(to, JSON_ELEMENT, '{');
    while (good && json_iter_next(&member)) {
        json_write_key_str(to, member.name);
        good = rewrite(to, member.value, member.name.ptr, depth);
    }
    json_write_close(to, '}');
    return good;
}

static bool rewrite(struct json_writer *to, yyjson_val *val, const char *name, unsigned depth) {
    if (depth > MAX_DEPTH) {
        return false;
    }
    if (json_is_object(val)) {
        return name && is_one_of(name, MAPS)
                   ? rewrite_map(to, val, strcmp(name, "priority_queue_policy") == 0, depth + 1)
                   : rewrite_object(to, val, depth + 1);
    }
    if (json_is_array(val)) {
        struct json_iter element = json_elements(val);
        bool good = true;
        json_write_open(to, JSON_ELEMENT, '[');
        while (good && json_iter_next(&element)) {
            good = rewrite(to, element.value, name, depth + 1);
        }
        json_write_close(to, ']');
        return good;
    }
    if (name && is_one_of(name, NUMBERS)) {
        rewrite_number(to, JSON_ELEMENT, val);
    } else {
        json_write_value(to, JSON_ELEMENT, val);
    }
    return true;
}

enum status model_config_json_rewrite(struct arena *arena, struct str json, struct str *out,
                                      struct error *err) {
    static const struct json_limits none = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    struct json_tree tree;
    struct error why;
    struct buf text;
    struct json_writer writer = {.out = &text};
    enum status st = json_tree_parse_request(&tree, arena, json, &none, &why);
    if (st != ST_OK && st != ST_NO_MEMORY) {
        return error_set(err, ST_BAD_CONFIG,
                         "the configuration given: expected a JSON object with the fields of a "
                         "ModelConfig: %s",
                         why.text);
    }
    buf_init(&text, arena, json.len);
    bool good = st == ST_OK && rewrite(&writer, tree.root, NULL, 0);
    buf_add_char(&text, '\0');
    if (st == ST_OK && !good) {
        return error_set(err, ST_BAD_CONFIG,
                         "the configuration given: nested deeper than %d levels", MAX_DEPTH);
    }
    if (st != ST_OK || text.failed) {
        return error_no_memory(err, "the model's configuration");
    }
    *out = str_make(text.data, text.len - 1);
    return ST_OK;
}
