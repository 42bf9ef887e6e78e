/* JSON and TEXT items into tensors. The elements are read as those of a v2 request are; what is
 * MIP's own is the nesting, bare values, and that an object or a text can be one BYTES element. It
 * refuses to convert: a number in a string is a string. */
#include "codec/mip/item.h"

#include <assert.h>

#include "codec/json/read.h"
#include "codec/kserve/data.h"
#include "codec/mip/item_shape.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"

static enum status no_memory(const char *what, struct error *err) {
    return error_set(err, ST_NO_MEMORY, "%s: out of memory for the elements", what);
}

/* Fills the bytes of `out` with one BYTES element. */
static enum status frame_text(struct arena *arena, struct str text, const char *what,
                              struct tensor *out, struct error *err) {
    assert(text.len <= UINT32_MAX); /* no item is longer */
    size_t n_bytes = BYTES_LENGTH_BYTES + text.len;
    char *data = arena_alloc(arena, n_bytes);
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    if (!data || !piece) {
        return no_memory(what, err);
    }
    bytes_encode_length(data, (uint32_t)text.len);
    if (text.len > 0) {
        memcpy(data + BYTES_LENGTH_BYTES, text.ptr, text.len);
    }
    *piece = (struct piece){data, n_bytes};
    out->pieces = piece;
    out->n_pieces = 1;
    out->n_bytes = n_bytes;
    return ST_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The text of the object that is, in arrays or not, the only value of `json`. */
static struct str object_text(struct str json) {
    size_t first = 0, end = json.len;
    while (json.ptr[first] != '{') {
        first++;
    }
    while (json.ptr[end - 1] != '}') {
        end--;
    }
    return str_make(json.ptr + first, end - first);
}

static bool is_object(yyjson_val *val) {
    while (unsafe_yyjson_is_arr(val)) {
        val = json_first(val);
    }
    return unsafe_yyjson_is_obj(val);
}

static enum status read_tree(const struct json_tree *tree, struct str text, struct shape dims,
                             const struct json_limits *limits, struct tensor *out,
                             struct error *err) {
    uint64_t n_elements;
    int64_t *resolved = arena_calloc(tree->arena, dims.rank, sizeof(*resolved));
    if (!resolved) {
        return no_memory(tree->root_name, err);
    }
    enum status status = mip_item_shape_fit(tree, dims, resolved, err);
    if (status != ST_OK) {
        return status;
    }
    out->shape = (struct shape){resolved, dims.rank};
    status = v2_shape_count(tree, tree->root, out->shape, limits, &n_elements, err);
    if (status != ST_OK) {
        return status;
    }
    if (out->datatype == DT_BYTES && mip_item_shape_is_single(dims) && n_elements == 1 &&
        is_object(tree->root)) {
        return frame_text(tree->arena, object_text(text), tree->root_name, out, err);
    }
    return v2_data_read_counted(tree, tree->root, n_elements, out, err);
}

enum status mip_item_read_json(struct arena *arena, struct str text, const char *what,
                               enum datatype datatype, struct shape dims,
                               const struct json_limits *limits, struct tensor *out,
                               struct error *err) {
    struct json_tree tree;
    enum status status = json_tree_parse(&tree, what, arena, text, limits, err);
    if (status == ST_OK) {
        tree.path_has_root_name = true;
        out->datatype = datatype;
        status = read_tree(&tree, text, dims, limits, out, err);
        json_tree_free_values(&tree);
    }
    return status;
}

/* ---- TEXT ------------------------------------------------------------------------------------ */

enum status mip_item_read_text(struct arena *arena, struct str text, const char *what,
                               enum datatype datatype, struct shape dims,
                               const struct json_limits *limits, struct tensor *out,
                               struct error *err) {
    if (datatype != DT_BYTES || !mip_item_shape_is_single(dims)) {
        return mip_item_read_json(arena, text, what, datatype, dims, limits, out, err);
    }
    size_t good = utf8_valid_prefix(text.ptr, text.len);
    if (good < text.len) {
        return error_set(err, ST_BAD_FIELD, "%s: expected text in UTF-8, byte %zu of %zu is not",
                         what, good, text.len);
    }
    int64_t *ones = arena_calloc(arena, dims.rank, sizeof(*ones));
    if (!ones) {
        return no_memory(what, err);
    }
    for (size_t i = 0; i < dims.rank; i++) {
        ones[i] = 1;
    }
    out->datatype = datatype;
    out->shape = (struct shape){ones, dims.rank};
    return frame_text(arena, text, what, out, err);
}
