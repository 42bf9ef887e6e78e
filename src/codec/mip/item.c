/* Items to tensors and back. The elements of a JSON item are read as those of a v2 request are;
 * MIP's own are the nesting, bare values, and that an object or a text can be one BYTES element. A
 * number in a string stays a string. */
#include "codec/mip/item.h"

#include <assert.h>
#include <inttypes.h>

#include "codec/json/tree.h"
#include "codec/kserve/encode.h"
#include "codec/kserve/json_elements.h"
#include "codec/kserve/json_elements_print.h"
#include "core/base/checked.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"

/* ---- shapes of JSON values ------------------------------------------------------------------- */

/* Shape of a JSON value. Zeroed at first. */
struct nesting {
    int64_t sizes[SHAPE_MAX_RANK]; /* of the first array at each depth */
    size_t rank;
};

/* Can `dims` (-1: any size) hold exactly one element: [], [1], [-1], [1,-1], …? */
static bool is_single_element(struct shape dims) {
    for (size_t i = 0; i < dims.rank; i++) {
        if (dims.dims[i] == 0 || dims.dims[i] > 1) {
            return false;
        }
    }
    return true;
}

static enum status measure_nesting(const struct json_tree *tree, struct nesting *out,
                                   struct error *err) {
    for (yyjson_val *val = tree->root; json_is_array(val); val = json_first(val)) {
        if (out->rank == SHAPE_MAX_RANK) {
            return json_error(tree, val, ST_BAD_SHAPE, err, "expected at most %d arrays nested",
                              SHAPE_MAX_RANK);
        }
        out->sizes[out->rank++] = (int64_t)json_count(val);
        if (json_count(val) == 0) {
            break;
        }
    }
    return ST_OK;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Compares `n` sizes with `n` dimensions. */
static bool fits_each(const int64_t *sizes, const int64_t *dims, size_t n, int64_t *out) {
    for (size_t i = 0; i < n; i++) {
        if (dims[i] >= 0 && dims[i] != sizes[i]) {
            return false;
        }
        out[i] = sizes[i];
    }
    return true;
}

/* Matches dimensions from the last; extra ones at the front must be 1. */
static bool fits_from_back(const struct nesting *nesting, struct shape dims, int64_t *out) {
    size_t common = nesting->rank < dims.rank ? nesting->rank : dims.rank;
    size_t extra = nesting->rank - common, missing = dims.rank - common;
    for (size_t i = 0; i < extra; i++) {
        if (nesting->sizes[i] != 1) {
            return false;
        }
    }
    for (size_t i = 0; i < missing; i++) {
        out[i] = 1;
    }
    return is_single_element((struct shape){dims.dims, missing}) &&
           fits_each(nesting->sizes + extra, dims.dims + missing, common, out + missing);
}

/* Matches dimensions from the first, up to an empty array. */
static bool fits_until_empty(const struct nesting *nesting, struct shape dims, int64_t *out) {
    size_t rank = nesting->rank;
    if (rank == 0 || rank >= dims.rank || nesting->sizes[rank - 1] != 0) {
        return false;
    }
    for (size_t i = rank; i < dims.rank; i++) {
        out[i] = dims.dims[i] < 0 ? 0 : dims.dims[i];
    }
    return fits_each(nesting->sizes, dims.dims, rank, out);
}

/* Matches one flat array of all elements, possibly within arrays of one. */
static bool fits_flat(const struct nesting *nesting, struct shape dims, int64_t *out) {
    size_t free_dim = SIZE_MAX;
    uint64_t product = 1;
    for (size_t i = 0; i < nesting->rank; i++) {
        if (i + 1 < nesting->rank && nesting->sizes[i] != 1) {
            return false;
        }
    }
    for (size_t i = 0; i < dims.rank; i++) {
        bool second = dims.dims[i] < 0 && free_dim != SIZE_MAX;
        if (second ||
            (dims.dims[i] >= 0 && !checked_mul_u64(product, (uint64_t)dims.dims[i], &product))) {
            return false;
        }
        free_dim = dims.dims[i] < 0 ? i : free_dim;
        out[i] = dims.dims[i];
    }
    uint64_t n = nesting->rank > 0 ? (uint64_t)nesting->sizes[nesting->rank - 1] : 1;
    if (free_dim == SIZE_MAX) {
        return n == product;
    }
    out[free_dim] = product > 0 ? (int64_t)(n / product) : 0;
    return n == (uint64_t)out[free_dim] * product;
}

/* ---- mismatches ------------------------------------------------------------------------------ */

static enum status shape_error(const struct json_tree *tree, const struct nesting *nesting,
                               struct shape dims, struct error *err) {
    char want[SHAPE_TEXT_BYTES], got[SHAPE_TEXT_BYTES];
    yyjson_val *val = tree->root;
    shape_print(dims, want);
    shape_print((struct shape){nesting->sizes, nesting->rank}, got);
    if (nesting->rank == 0) {
        return json_error_got(tree, val, ST_BAD_SHAPE, err, "expected an array of shape %s", want);
    }
    if (dims.rank == 0) {
        return json_error(tree, val, ST_BAD_SHAPE, err,
                          "expected a single value, got an array of shape %s", got);
    }
    for (size_t i = 0; nesting->rank == dims.rank && i < dims.rank; i++, val = json_first(val)) {
        if (dims.dims[i] >= 0 && dims.dims[i] != nesting->sizes[i]) {
            return json_error_got(tree, val, ST_BAD_SHAPE, err,
                                  "expected an array of %" PRId64 " for shape %s", dims.dims[i],
                                  want);
        }
    }
    return json_error(tree, tree->root, ST_BAD_SHAPE, err,
                      "expected an array of shape %s, got one of shape %s", want, got);
}

/* Checks that every array has the size of the first at its depth, and that the elements are not
 * arrays. */
static enum status check_rows(const struct json_tree *tree, const struct nesting *nesting,
                              struct error *err) {
    uint64_t left[SHAPE_MAX_RANK + 1] = {1}; /* values left in the open array of each depth */
    size_t depth = 0;
    for (yyjson_val *val = tree->root; val < tree->end;) {
        while (left[depth] == 0) {
            depth--;
        }
        left[depth]--;
        if (depth == nesting->rank) {
            if (json_is_array(val)) {
                return json_error_got(tree, val, ST_BAD_SHAPE, err,
                                      "expected an element, like the first at this depth");
            }
            val = json_next(val);
            continue;
        }
        int64_t size = nesting->sizes[depth];
        if (!json_is_array(val) || json_count(val) != (uint64_t)size) {
            return json_error_got(tree, val, ST_BAD_SHAPE, err,
                                  "expected an array of %" PRId64 ", like the first at this depth",
                                  size);
        }
        left[++depth] = (uint64_t)size;
        val++;
    }
    return ST_OK;
}

/* Matches the shape of the tree's root with `dims` (-1: any size); *out: the resolved shape,
 * dims.rank dimensions. Sizes are matched with dimensions from the last; extra ones at the front
 * of either side must be 1 (a -1 there becomes 1). After an empty array, whose further nesting
 * is unknown, dimensions of -1 become 0. Otherwise, if at most one dimension is -1, one flat
 * array with the right number of elements matches. Arrays of one depth must have one size.
 * Returns: ST_BAD_SHAPE with the path of the mismatch. */
static enum status fit_shape(const struct json_tree *tree, struct shape dims, int64_t *out,
                             struct error *err) {
    struct nesting nesting = {.rank = 0};
    enum status status = measure_nesting(tree, &nesting, err);
    if (status != ST_OK) {
        return status;
    }
    if (!fits_until_empty(&nesting, dims, out) && !fits_from_back(&nesting, dims, out) &&
        !fits_flat(&nesting, dims, out)) {
        return shape_error(tree, &nesting, dims, err);
    }
    return check_rows(tree, &nesting, err);
}

/* ---- items to tensors ------------------------------------------------------------------------ */

/* Sets the bytes of `out` to one BYTES element. */
static enum status frame_text(struct arena *arena, struct str text, const char *what,
                              struct tensor *out, struct error *err) {
    assert(text.len <= UINT32_MAX); /* an item's size has 32 bits */
    size_t n_bytes = BYTES_LENGTH_BYTES + text.len;
    char *data = arena_alloc(arena, n_bytes);
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    if (!data || !piece) {
        return error_no_memory(err, "the elements of %s", what);
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

/* Returns: the text of the object that is, within arrays or not, the only value of `json`. */
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
    while (json_is_array(val)) {
        val = json_first(val);
    }
    return json_is_object(val);
}

static enum status read_tree(const struct json_tree *tree, struct str text, struct shape dims,
                             const struct json_limits *limits, struct tensor *out,
                             struct error *err) {
    uint64_t n_elements;
    int64_t *resolved = arena_calloc(tree->arena, dims.rank, sizeof(*resolved));
    if (!resolved) {
        return error_no_memory(err, "the elements of %s", tree->root_name);
    }
    enum status status = fit_shape(tree, dims, resolved, err);
    if (status != ST_OK) {
        return status;
    }
    out->shape = (struct shape){resolved, dims.rank};
    status = v2_shape_count(tree, tree->root, out->shape, limits, &n_elements, err);
    if (status != ST_OK) {
        return status;
    }
    if (out->datatype == DT_BYTES && is_single_element(dims) && n_elements == 1 &&
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
    if (datatype != DT_BYTES || !is_single_element(dims)) {
        return mip_item_read_json(arena, text, what, datatype, dims, limits, out, err);
    }
    size_t good = utf8_valid_prefix(text.ptr, text.len);
    if (good < text.len) {
        return error_set(err, ST_BAD_FIELD, "%s: expected text in UTF-8, byte %zu of %zu is not",
                         what, good, text.len);
    }
    int64_t *ones = arena_calloc(arena, dims.rank, sizeof(*ones));
    if (!ones) {
        return error_no_memory(err, "the elements of %s", what);
    }
    for (size_t i = 0; i < dims.rank; i++) {
        ones[i] = 1;
    }
    out->datatype = datatype;
    out->shape = (struct shape){ones, dims.rank};
    return frame_text(arena, text, what, out, err);
}

/* ---- tensors to items ------------------------------------------------------------------------ */

enum {
    FIRST_BYTES = 64,
    /* Empty rows are cheap for a backend but cost two brackets each in JSON. */
    MAX_EMPTY_ROWS = 65536,
};

static enum status check_empty_rows(const struct tensor *tensor, struct error *err) {
    struct shape shape = tensor->shape;
    uint64_t n = 1;
    for (size_t i = 0; i < shape.rank && shape.dims[i] != 0; i++) {
        if (!checked_mul_u64(n, (uint64_t)shape.dims[i], &n)) {
            n = UINT64_MAX;
            break;
        }
    }
    if (n <= MAX_EMPTY_ROWS) {
        return ST_OK;
    }
    char name[QUOTED_NAME_BYTES], text[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_OUTPUT,
                     "tensor %s: shape %s has no elements and more than %d rows, which JSON would "
                     "have to list",
                     quote_name(tensor->name, name), shape_print(shape, text), MAX_EMPTY_ROWS);
}

/* Prints `level` of the shape and the levels below, with a comma after it. The recursion is as
 * deep as the shape's rank. */
static enum status print_level(struct element_print *print, size_t level, struct buf *out,
                               struct error *err) {
    struct shape shape = print->tensor->shape;
    enum status status = ST_OK;
    if (level == shape.rank) {
        return element_print_next(print, out, 1, err);
    }
    buf_add_char(out, '[');
    if (level + 1 == shape.rank) {
        status = element_print_next(print, out, (uint64_t)shape.dims[level], err);
    } else {
        for (int64_t i = 0; i < shape.dims[level] && status == ST_OK && !out->failed; i++) {
            status = print_level(print, level + 1, out, err);
        }
    }
    if (!out->failed && out->data[out->len - 1] == ',') {
        out->len--;
    }
    buf_add_str(out, STR("],"));
    return status;
}

static enum status print_all(struct buf *out, const struct tensor *tensor,
                             enum v2_non_finite non_finite, struct error *err) {
    struct element_print print;
    uint64_t n_elements;
    enum status status = element_print_start(&print, out->arena, tensor, "", err);
    if (status == ST_OK && !shape_elements(tensor->shape, &n_elements)) {
        char name[QUOTED_NAME_BYTES], text[SHAPE_TEXT_BYTES];
        status = error_set(err, ST_BAD_OUTPUT, "tensor %s: %s is no shape of an output",
                           quote_name(tensor->name, name), shape_print(tensor->shape, text));
    }
    if (status == ST_OK && n_elements == 0) {
        status = check_empty_rows(tensor, err);
    }
    if (status == ST_OK) {
        print.non_finite = non_finite;
        status = print_level(&print, 0, out, err);
    }
    if (status == ST_OK && out->failed) {
        status = error_no_memory(err, "an output as JSON");
    }
    return status == ST_OK ? element_print_finish(&print, err) : status;
}

enum status mip_item_print_json(struct buf *out, const struct tensor *tensor,
                                enum v2_non_finite non_finite, struct error *err) {
    assert(tensor->shape.rank <= SHAPE_MAX_RANK);
    enum status status = print_all(out, tensor, non_finite, err);
    if (status == ST_OK) {
        out->len--; /* the last comma */
    }
    return v2_output_error(status, err);
}

/* ---- items ----------------------------------------------------------------------------------- */

static enum status view_text(struct arena *arena, const struct tensor *tensor, struct str *out,
                             struct error *err) {
    char name[QUOTED_NAME_BYTES];
    struct str rest = element_gather(arena, tensor);
    if (!rest.ptr) {
        return error_no_memory(err, "an output as text");
    }
    if (!bytes_next(&rest, out) || rest.len > 0) {
        return error_set(err, ST_BAD_OUTPUT, "tensor %s: %zu bytes are not one BYTES element",
                         quote_name(tensor->name, name), tensor->n_bytes);
    }
    size_t good = utf8_valid_prefix(out->ptr, out->len);
    if (good < out->len) {
        return error_set(err, ST_BAD_OUTPUT,
                         "tensor %s: its element is not UTF-8 (byte %zu of %zu), which TEXT has to "
                         "be",
                         quote_name(tensor->name, name), good, out->len);
    }
    return ST_OK;
}

enum status mip_item_of_tensor(struct arena *arena, const struct tensor *tensor,
                               enum v2_non_finite non_finite, struct mip_item *out,
                               struct error *err) {
    uint64_t n_elements;
    if (tensor->datatype == DT_BYTES && shape_elements(tensor->shape, &n_elements) &&
        n_elements == 1) {
        out->type = MIP_TEXT;
        return view_text(arena, tensor, &out->data, err);
    }
    struct buf json;
    buf_init(&json, arena, FIRST_BYTES);
    enum status status = mip_item_print_json(&json, tensor, non_finite, err);
    *out = (struct mip_item){MIP_JSON, buf_str(&json)};
    return status;
}
