/* A server's metadata, read from its JSON. */
#include "codec/kserve/server_metadata_decode.h"

#include "codec/json/path.h"
#include "codec/json/read.h"
#include "codec/json/tree.h"

static enum status read_extensions(const struct json_tree *tree, yyjson_val *list,
                                   struct v2_server_metadata *out, struct error *err) {
    if (!list || yyjson_is_null(list)) {
        return ST_OK;
    }
    enum status status = json_expect_array(tree, list, err);
    if (status != ST_OK) {
        return status;
    }
    size_t n = json_count(list);
    struct str *texts = arena_calloc(tree->arena, n, sizeof(*texts));
    if (!texts) {
        return error_set(err, ST_NO_MEMORY, "no memory for a server's metadata");
    }
    yyjson_val *element = json_first(list);
    for (size_t i = 0; i < n && status == ST_OK; i++, element = json_next(element)) {
        status = json_read_string(tree, element, &texts[i], err);
    }
    out->extensions = texts;
    out->n_extensions = n;
    return status;
}

enum status v2_server_metadata_decode(struct arena *arena, struct str body,
                                      const struct json_limits *limits,
                                      struct v2_server_metadata *out, struct error *err) {
    struct json_tree tree;
    *out = (struct v2_server_metadata){.version = STR("")};
    enum status status = json_tree_parse(&tree, "the server's metadata", arena, body, limits, err);
    if (status == ST_OK) {
        status = json_expect_object(&tree, tree.root, err);
    }
    if (status != ST_OK) {
        return status;
    }
    yyjson_val *name = yyjson_obj_get(tree.root, "name");
    yyjson_val *version = yyjson_obj_get(tree.root, "version");
    if (!name) {
        return json_error_missing(&tree, tree.root, "name", "a string", err);
    }
    status = json_read_string(&tree, name, &out->name, err);
    if (status == ST_OK && version) {
        status = json_read_string(&tree, version, &out->version, err);
    }
    if (status == ST_OK) {
        status = read_extensions(&tree, yyjson_obj_get(tree.root, "extensions"), out, err);
    }
    return status;
}
