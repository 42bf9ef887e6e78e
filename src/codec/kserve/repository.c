/* Repository requests over HTTP. */
#include "codec/kserve/repository.h"

#include "codec/json/read.h"
#include "codec/protobuf/grpc_text.h"

/* The body as a tree; `root` NULL for an empty one. */
static enum status parse_body(struct json_tree *tree, struct arena *arena, struct str body,
                              const struct json_limits *limits, struct error *err) {
    *tree = (struct json_tree){.arena = arena};
    if (str_trim(body).len == 0) {
        return ST_OK;
    }
    return json_tree_parse_request(tree, arena, body, limits, err);
}

/* The value of the member; NULL where there is none. */
static yyjson_val *find_member(yyjson_val *object, struct str name) {
    yyjson_val *found = NULL;
    if (object) {
        json_find(object, &name, 1, &found);
    }
    return found;
}

/* "parameters", checked to be an object; NULL where there are none. */
static enum status find_parameters(const struct json_tree *tree, yyjson_val **out,
                                   struct error *err) {
    *out = find_member(tree->root, STR("parameters"));
    return *out ? json_expect_object(tree, *out, err) : ST_OK;
}

enum status v2_repository_index_decode(struct arena *arena, struct str body,
                                       const struct json_limits *limits,
                                       struct v2_repository_request *out, struct error *err) {
    struct json_tree tree;
    *out = (struct v2_repository_request){.ready = false};
    enum status st = parse_body(&tree, arena, body, limits, err);
    yyjson_val *ready = st == ST_OK ? find_member(tree.root, STR("ready")) : NULL;
    return ready ? json_read_bool(&tree, ready, &out->ready, err) : st;
}

/* ---- load ------------------------------------------------------------------------------------ */

static enum status add_file(const struct json_tree *tree, struct str name, struct str text,
                            size_t total, struct v2_repository_request *out, struct error *err) {
    struct v2_repository_file *files =
        json_array_grow(tree->arena, (void *)out->files, out->n_files, total, sizeof(*files));
    if (!files) {
        return error_set(err, ST_NO_MEMORY, "no memory for the parameters");
    }
    struct v2_repository_file *file = &files[out->n_files++];
    out->files = files;
    file->path = str_make(name.ptr + 5, name.len - 5);
    enum status st = grpc_binary_metadata_parse(tree->arena, text, &file->data, err);
    return st == ST_BAD_REQUEST
               ? error_set(err, ST_BAD_FIELD, "parameters: \"%.*s\" is not base64", STR_ARG(name))
               : st;
}

static enum status read_parameter(const struct json_tree *tree, struct str name, yyjson_val *value,
                                  size_t total, struct v2_repository_request *out,
                                  struct error *err) {
    bool is_config = str_is(name, "config"), is_file = str_starts_with(name, STR("file:"));
    if (!is_config && !is_file) {
        return error_set(err, ST_INTERNAL,
                         "parameters: expected config and file:VERSION/NAME, got \"%.*s\"",
                         STR_ARG(name));
    }
    if (!yyjson_is_str(value)) {
        return error_set(err, ST_INTERNAL, "parameters: expected text for \"%.*s\", got %s",
                         STR_ARG(name), yyjson_get_type_desc(value));
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
    return st;
}

/* ---- unload ---------------------------------------------------------------------------------- */

enum status v2_repository_unload_decode(struct arena *arena, struct str body,
                                        const struct json_limits *limits, struct error *err) {
    struct json_tree tree;
    yyjson_val *parameters = NULL;
    bool dependents;
    enum status st = parse_body(&tree, arena, body, limits, err);
    if (st == ST_OK) {
        st = find_parameters(&tree, &parameters, err);
    }
    yyjson_val *value = st == ST_OK ? find_member(parameters, STR("unload_dependents")) : NULL;
    return value ? json_read_bool(&tree, value, &dependents, err) : st;
}
