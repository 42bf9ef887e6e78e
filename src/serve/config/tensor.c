/* The inputs and outputs of a configuration: name, data_type, dims, reshape, optional,
 * label_filename. What the model itself says of them comes later (resolve_config.c). */
#include "serve/config/read.h"
#include "serve/config/reshape.h"

/* The batch dimension stands before these. */
enum { MAX_DIMS = SHAPE_MAX_RANK - 1 };

enum status config_read_dims(struct arena *arena, const struct doc_node *node, struct shape *out,
                             struct error *err) {
    size_t n = doc_count(node);
    if (n > MAX_DIMS) {
        return doc_error(node, err, "expected at most %d dimensions, got %zu", MAX_DIMS, n);
    }
    int64_t *dims = arena_calloc(arena, n, sizeof(*dims));
    if (!dims) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        struct doc_node element = doc_at(node, i);
        enum status st = doc_read_i64(&element, INT64_MIN, INT64_MAX, &dims[i], err);
        if (st != ST_OK) {
            return st;
        }
        if (dims[i] < -1 || dims[i] == 0) {
            return doc_error(&element, err,
                             "expected a size of at least 1, or -1 for any, got %lld",
                             (long long)dims[i]);
        }
    }
    *out = (struct shape){dims, n};
    return ST_OK;
}

enum status config_read_datatype(const struct doc_node *parent, enum datatype *out,
                                 struct error *err) {
    struct doc_node node = doc_get(parent, "data_type");
    struct str name = {NULL, 0};
    enum status st = doc_read_str(&node, &name, err);
    /* TYPE_INVALID is the protobuf way to say nothing. */
    if (st != ST_OK || !name.ptr || str_is(name, "TYPE_INVALID")) {
        return st;
    }
    *out = datatype_parse_config(name);
    if (*out == DT_INVALID) {
        return doc_error(
            &node, err,
            "\"%.*s\" is no data type; those are TYPE_BOOL, TYPE_UINT8 to TYPE_UINT64, "
            "TYPE_INT8 to TYPE_INT64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_BF16 and "
            "TYPE_STRING",
            STR_ARG(name));
    }
    return ST_OK;
}

static enum status read_shape(struct arena *arena, const struct doc_node *parent,
                              struct model_config_tensor *out, struct error *err) {
    struct doc_node node = doc_get(parent, "dims");
    if (!node.val) {
        return ST_OK;
    }
    enum status st = config_read_dims(arena, &node, &out->dims, err);
    if (st == ST_OK && out->dims.rank == 0) {
        return doc_error(&node, err,
                         "must not be empty; a tensor without dimensions is dims: [ 1 ] with "
                         "reshape: { shape: [ ] }");
    }
    out->has_dims = true;
    return st;
}

static enum status read_reshape(struct arena *arena, const struct doc_node *parent,
                                struct model_config_tensor *out, struct error *err) {
    struct doc_node node = doc_get(parent, "reshape");
    if (!node.val) {
        return ST_OK;
    }
    if (!out->has_dims) {
        return doc_error(&node, err, "needs dims beside it");
    }
    struct doc_node list = doc_get(&node, "shape");
    enum status st = config_read_dims(arena, &list, &out->reshape, err);
    if (st == ST_OK && !reshape_is_valid(out->dims, out->reshape)) {
        char dims[SHAPE_TEXT_BYTES], reshape[SHAPE_TEXT_BYTES];
        st =
            doc_error(&node, err,
                      "%s has not as many elements as dims %s (between any two -1 they must agree)",
                      shape_print(out->reshape, reshape), shape_print(out->dims, dims));
    }
    out->has_reshape = true;
    return st;
}

static enum status read_tensor(struct arena *arena, const struct doc_node *node, bool is_input,
                               struct model_config_tensor *out, struct error *err) {
    enum status st = config_read_text(arena, node, "name", &out->name, err);
    if (st == ST_OK && out->name.len == 0) {
        st = doc_error(node, err, "has no name");
    }
    if (st == ST_OK) {
        st = config_read_datatype(node, &out->datatype, err);
    }
    if (st == ST_OK) {
        st = read_shape(arena, node, out, err);
    }
    if (st == ST_OK) {
        st = read_reshape(arena, node, out, err);
    }
    if (st == ST_OK && is_input) {
        struct doc_node optional = doc_get(node, "optional");
        st = doc_read_bool(&optional, &out->optional, err);
    }
    if (st == ST_OK && !is_input) {
        st = config_read_filename(arena, node, "label_filename", &out->label_filename, err);
    }
    return st;
}

static enum status check_unique(const struct doc_node *node,
                                const struct model_config_tensor *tensors, size_t i,
                                struct error *err) {
    for (size_t j = 0; j < i; j++) {
        if (str_eq(tensors[j].name, tensors[i].name)) {
            return doc_error(node, err, "the name \"%.*s\" is taken already",
                             STR_ARG(tensors[i].name));
        }
    }
    return ST_OK;
}

static enum status read_list(struct arena *arena, const struct doc_node *root, const char *key,
                             struct model_config_tensor **out, size_t *n, struct error *err) {
    struct doc_node list = doc_get(root, key);
    size_t count = doc_count(&list);
    struct model_config_tensor *tensors = arena_calloc(arena, count, sizeof(*tensors));
    if (!tensors) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        struct doc_node node = doc_at(&list, i);
        enum status st = read_tensor(arena, &node, str_is(str_of(key), "input"), &tensors[i], err);
        if (st == ST_OK) {
            st = check_unique(&node, tensors, i, err);
        }
        if (st != ST_OK) {
            return st;
        }
    }
    *out = tensors;
    *n = count;
    return ST_OK;
}

enum status config_read_tensors(struct arena *arena, const struct doc_node *root,
                                struct model_config *out, struct error *err) {
    enum status st = read_list(arena, root, "input", &out->inputs, &out->n_inputs, err);
    if (st == ST_OK) {
        st = read_list(arena, root, "output", &out->outputs, &out->n_outputs, err);
    }
    return st;
}
