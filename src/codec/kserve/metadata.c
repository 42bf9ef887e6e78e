/* Health is printed; errors and metadata are decoded. */
#include "codec/kserve/metadata.h"

#include "codec/json/tree.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"

/* ---- health ---------------------------------------------------------------------------------- */

/* Load balancers poll these two: their texts are constants. */
void v2_live_print(struct buf *out, bool live) {
    buf_add_str(out, live ? STR("{\"live\":true}") : STR("{\"live\":false}"));
}

void v2_ready_print(struct buf *out, bool ready) {
    buf_add_str(out, ready ? STR("{\"live\":true,\"ready\":true}")
                           : STR("{\"live\":false,\"ready\":false}"));
}

void v2_model_ready_print(struct buf *out, struct str name, bool ready) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "name", name);
    json_write_bool(&json, "ready", ready);
    json_write_close(&json, '}');
}

/* ---- errors and metadata --------------------------------------------------------------------- */

/* ---- errors ---------------------------------------------------------------------------------- */

struct str v2_error_decode(struct arena *arena, struct str body) {
    static const struct json_limits limits = {
        .max_json_size = 1 << 20, .max_json_depth = 64, .max_tensor_elements = 65536};
    struct json_tree tree;
    return json_tree_parse(&tree, "the error", arena, body, &limits, NULL) == ST_OK
               ? json_text(json_member(tree.root, "error"))
               : str_make(NULL, 0);
}

/* ---- metadata -------------------------------------------------------------------------------- */

enum { NAME, VERSIONS, PLATFORM, INPUTS, OUTPUTS, N_MEMBERS };

static const struct str member_names[N_MEMBERS] = {
    [NAME] = {"name", 4},     [VERSIONS] = {"versions", 8}, [PLATFORM] = {"platform", 8},
    [INPUTS] = {"inputs", 6}, [OUTPUTS] = {"outputs", 7},
};

enum { TENSOR_NAME, TENSOR_DATATYPE, TENSOR_SHAPE, N_TENSOR_MEMBERS };

static const struct str tensor_names[N_TENSOR_MEMBERS] = {
    [TENSOR_NAME] = {"name", 4},
    [TENSOR_DATATYPE] = {"datatype", 8},
    [TENSOR_SHAPE] = {"shape", 5},
};

/* Dimensions are >= -1; -1: any size. */
static enum status read_spec_shape(const struct json_tree *tree, yyjson_val *array,
                                   struct shape *out, struct error *err) {
    enum status status = json_expect_array(tree, array, err);
    if (status != ST_OK) {
        return status;
    }
    size_t rank = json_count(array);
    int64_t *dims = arena_calloc(tree->arena, rank, sizeof(*dims));
    if (!dims) {
        return error_no_memory(err, "the metadata");
    }
    yyjson_val *val = rank > 0 ? json_first(array) : NULL;
    for (size_t i = 0; status == ST_OK && i < rank; i++, val = json_next(val)) {
        status = json_read_i64(tree, val, -1, &dims[i], err);
    }
    *out = (struct shape){dims, rank};
    return status;
}

static enum status read_spec(const struct json_tree *tree, yyjson_val *object,
                             struct tensor_spec *out, struct error *err) {
    yyjson_val *found[N_TENSOR_MEMBERS] = {NULL};
    struct str datatype;
    enum status status = json_expect_object(tree, object, err);
    if (status != ST_OK) {
        return status;
    }
    json_find(object, tensor_names, N_TENSOR_MEMBERS, found);
    for (size_t i = 0; i < N_TENSOR_MEMBERS; i++) {
        if (!found[i]) {
            return json_error_missing(tree, object, tensor_names[i].ptr, "what the tensor is", err);
        }
    }
    status = json_read_string(tree, found[TENSOR_NAME], &out->name, err);
    if (status == ST_OK) {
        status = json_read_string(tree, found[TENSOR_DATATYPE], &datatype, err);
    }
    if (status == ST_OK) {
        out->datatype = datatype_parse(datatype);
        status = out->datatype != DT_INVALID
                     ? ST_OK
                     : json_error_got(tree, found[TENSOR_DATATYPE], ST_BAD_DATATYPE, err,
                                      "expected the name of a datatype");
    }
    if (status == ST_OK) {
        status = read_spec_shape(tree, found[TENSOR_SHAPE], &out->shape, err);
    }
    return status;
}

static enum status read_specs(const struct json_tree *tree, yyjson_val *array,
                              const struct tensor_spec **out, size_t *n, struct error *err) {
    enum status status = array ? json_expect_array(tree, array, err) : ST_OK;
    size_t total = array && status == ST_OK ? json_count(array) : 0;
    yyjson_val *val = total > 0 ? json_first(array) : NULL;
    struct tensor_spec *specs = NULL;
    *n = 0;
    for (; status == ST_OK && *n < total; val = json_next(val)) {
        struct tensor_spec *grown = json_array_grow(tree->arena, specs, *n, total, sizeof(*specs));
        if (!grown) {
            return error_no_memory(err, "the metadata");
        }
        specs = grown;
        specs[*n] = (struct tensor_spec){0};
        status = read_spec(tree, val, &specs[(*n)++], err);
    }
    *out = specs;
    return status;
}

/* The last version: they are ascending. */
static enum status read_version(const struct json_tree *tree, yyjson_val *array,
                                struct model_spec *out, struct error *err) {
    enum status status = json_expect_array(tree, array, err);
    size_t n = status == ST_OK ? json_count(array) : 0;
    yyjson_val *val = n > 0 ? json_first(array) : NULL;
    for (; status == ST_OK && n > 0; n--, val = json_next(val)) {
        status = json_read_string(tree, val, &out->version_text, err);
    }
    if (status == ST_OK && !num_parse_u64(out->version_text, &out->version)) {
        out->version = 0;
    }
    return status;
}

static enum status read_model(const struct json_tree *tree, struct model_spec *out,
                              struct error *err) {
    yyjson_val *found[N_MEMBERS] = {NULL};
    enum status status = json_expect_object(tree, tree->root, err);
    if (status != ST_OK) {
        return status;
    }
    json_find(tree->root, member_names, N_MEMBERS, found);
    status = found[NAME] ? json_read_string(tree, found[NAME], &out->name, err)
                         : json_error_missing(tree, tree->root, "name", "a string", err);
    if (status == ST_OK && found[PLATFORM]) {
        status = json_read_string(tree, found[PLATFORM], &out->platform, err);
    }
    if (status == ST_OK && found[VERSIONS]) {
        status = read_version(tree, found[VERSIONS], out, err);
    }
    if (status == ST_OK) {
        status = read_specs(tree, found[INPUTS], &out->inputs, &out->n_inputs, err);
    }
    if (status == ST_OK) {
        status = read_specs(tree, found[OUTPUTS], &out->outputs, &out->n_outputs, err);
    }
    return status;
}

enum status v2_model_metadata_decode(struct arena *arena, struct str body,
                                     const struct json_limits *limits, struct model_spec *out,
                                     struct error *err) {
    struct json_tree tree;
    *out = (struct model_spec){0};
    enum status status = json_tree_parse(&tree, "the metadata", arena, body, limits, err);
    if (status == ST_OK) {
        status = read_model(&tree, out, err);
        json_tree_free_values(&tree);
    }
    return status;
}

/* ---- server metadata ------------------------------------------------------------------------- */

static enum status read_extensions(const struct json_tree *tree, yyjson_val *list,
                                   struct v2_server_metadata *out, struct error *err) {
    if (!list || json_is_null(list)) {
        return ST_OK;
    }
    enum status status = json_expect_array(tree, list, err);
    if (status != ST_OK) {
        return status;
    }
    size_t n = json_count(list);
    struct str *texts = arena_calloc(tree->arena, n, sizeof(*texts));
    if (!texts) {
        return error_no_memory(err, "a server's metadata");
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
    yyjson_val *name = json_member(tree.root, "name");
    yyjson_val *version = json_member(tree.root, "version");
    if (!name) {
        return json_error_missing(&tree, tree.root, "name", "a string", err);
    }
    status = json_read_string(&tree, name, &out->name, err);
    if (status == ST_OK && version) {
        status = json_read_string(&tree, version, &out->version, err);
    }
    if (status == ST_OK) {
        status = read_extensions(&tree, json_member(tree.root, "extensions"), out, err);
    }
    return status;
}
