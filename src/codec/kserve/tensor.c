/* One tensor of a request or a response: its members are found in one pass, then checked in the
 * order in which they depend on each other. */
#include "codec/kserve/tensor.h"

#include <inttypes.h>

#include "codec/json/tree.h"
#include "codec/kserve/json_elements.h"

enum { NAME, SHAPE, DATATYPE, PARAMETERS, DATA, N_MEMBERS };

static const struct str member_names[N_MEMBERS] = {
    [NAME] = {"name", 4},         [SHAPE] = {"shape", 5},
    [DATATYPE] = {"datatype", 8}, [PARAMETERS] = {"parameters", 10},
    [DATA] = {"data", 4},
};

/* The object and the values of its members; NULL: absent. */
struct members {
    const struct json_tree *tree;
    yyjson_val *object;
    yyjson_val *val[N_MEMBERS];
};

/* ---- name, datatype, shape ------------------------------------------------------------------- */

static enum status read_name(const struct members *members, struct tensor *tensor,
                             struct error *err) {
    return members->val[NAME]
               ? json_read_string(members->tree, members->val[NAME], &tensor->name, err)
               : json_error_missing(members->tree, members->object, "name", "a string", err);
}

static enum status read_datatype(const struct members *members, struct tensor *tensor,
                                 struct error *err) {
    struct str name;
    if (!members->val[DATATYPE]) {
        return json_error_missing(members->tree, members->object, "datatype",
                                  "the name of a datatype, as \"FP32\"", err);
    }
    enum status status = json_read_string(members->tree, members->val[DATATYPE], &name, err);
    if (status != ST_OK) {
        return status;
    }
    tensor->datatype = datatype_parse(name);
    if (tensor->datatype == DT_INVALID) {
        return json_error_got(members->tree, members->val[DATATYPE], ST_BAD_DATATYPE, err,
                              "expected BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, "
                              "INT64, FP16, FP32, FP64, BF16 or BYTES");
    }
    return ST_OK;
}

static enum status read_shape(const struct members *members, struct tensor *tensor,
                              struct error *err) {
    if (!members->val[SHAPE]) {
        return json_error_missing(members->tree, members->object, "shape",
                                  "an array of whole numbers", err);
    }
    enum status status = json_expect_array(members->tree, members->val[SHAPE], err);
    if (status != ST_OK) {
        return status;
    }
    size_t rank = json_count(members->val[SHAPE]);
    if (rank > SHAPE_MAX_RANK) {
        return json_error(members->tree, members->val[SHAPE], ST_BAD_SHAPE, err,
                          "expected at most %d dimensions, got %zu", SHAPE_MAX_RANK, rank);
    }
    int64_t *dims = arena_alloc(members->tree->arena, rank * sizeof(*dims));
    if (!dims) {
        return json_error(members->tree, members->val[SHAPE], ST_NO_MEMORY, err,
                          "out of memory for the shape");
    }
    yyjson_val *dim = json_first(members->val[SHAPE]);
    for (size_t i = 0; status == ST_OK && i < rank; i++, dim = json_next(dim)) {
        status = json_read_i64(members->tree, dim, 0, &dims[i], err);
    }
    tensor->shape = (struct shape){dims, rank};
    return status;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct v2_binary v2_binary_start(struct str body, size_t json_bytes) {
    size_t n_bytes = body.len - json_bytes;
    return (struct v2_binary){
        /* An empty body may have no pointer. */
        .rest = str_make(json_bytes > 0 ? body.ptr + json_bytes : body.ptr, n_bytes),
        .n_bytes = n_bytes,
        .is_all_json = n_bytes == 0,
    };
}

static enum status too_few_bytes(const struct v2_binary *binary, const struct json_tree *tree,
                                 const struct v2_protocol_params *wire, struct error *err) {
    if (binary->is_all_json) {
        return json_error(tree, wire->size, ST_BAD_FRAMING, err,
                          "%" PRIu64 " bytes of tensor data are announced, but none follow the "
                          "JSON: Inference-Header-Content-Length is missing or is the length of "
                          "the whole body (it is the length of the JSON)",
                          wire->n_bytes);
    }
    return json_error(tree, wire->size, ST_BAD_FRAMING, err,
                      "expected %" PRIu64 " bytes of tensor data here, got %zu (%zu follow the "
                      "JSON, the tensors before this one take %zu)",
                      wire->n_bytes, binary->rest.len, binary->n_bytes,
                      binary->n_bytes - binary->rest.len);
}

/* Takes the tensor's bytes as a view. */
static enum status take_binary(struct v2_binary *binary, const struct json_tree *tree,
                               const struct v2_protocol_params *wire, struct tensor *tensor,
                               struct error *err) {
    if (wire->n_bytes > binary->rest.len) {
        return too_few_bytes(binary, tree, wire, err);
    }
    size_t n_bytes = (size_t)wire->n_bytes;
    struct piece *piece = arena_alloc(tree->arena, sizeof(*piece));
    if (!piece) {
        return json_error(tree, wire->size, ST_NO_MEMORY, err, "out of memory for the binary data");
    }
    *piece = (struct piece){binary->rest.ptr, n_bytes};
    binary->rest = str_make(binary->rest.ptr + n_bytes, binary->rest.len - n_bytes);
    tensor->pieces = piece;
    tensor->n_pieces = 1;
    tensor->n_bytes = n_bytes;
    return ST_OK;
}

enum status v2_binary_check_consumed(const struct v2_binary *binary, const struct json_tree *tree,
                                     struct error *err) {
    if (binary->rest.len == 0) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_FRAMING,
                     "%s: expected %zu bytes after the JSON (the sum of binary_data_size), got %zu "
                     "(%zu too many)",
                     tree->root_name, binary->n_bytes - binary->rest.len, binary->n_bytes,
                     binary->rest.len);
}

/* ---- the tensor ------------------------------------------------------------------------------ */

static enum status read_bytes(const struct members *members, const struct v2_protocol_params *wire,
                              uint64_t n_elements, struct v2_binary *binary, struct v2_tensor *out,
                              struct error *err) {
    if (members->val[DATA] && wire->size) {
        return json_error(members->tree, members->object, ST_BAD_FIELD, err,
                          "expected one of \"data\" and the parameter \"binary_data_size\", got "
                          "both");
    }
    if (members->val[DATA] && wire->region.name.ptr) {
        return json_error(members->tree, members->object, ST_BAD_FIELD, err,
                          "expected one of \"data\" and the parameter \"shared_memory_region\", "
                          "got both");
    }
    if (wire->region.name.ptr) {
        out->region = wire->region;
        return ST_OK;
    }
    if (wire->size) {
        out->form = V2_FORM_BINARY;
        return take_binary(binary, members->tree, wire, &out->tensor, err);
    }
    if (!members->val[DATA] && binary->may_lack_data) {
        return ST_OK;
    }
    if (!members->val[DATA]) {
        return json_error_missing(
            members->tree, members->object, "data",
            "an array of the elements here, or their bytes after the JSON and "
            "the parameter \"binary_data_size\"",
            err);
    }
    out->form = V2_FORM_JSON;
    out->data = members->val[DATA];
    return v2_data_read(members->tree, members->val[DATA], n_elements, &out->tensor, err);
}

enum status v2_tensor_read(const struct json_tree *tree, yyjson_val *val, enum v2_params_of of,
                           const struct json_limits *limits, struct v2_binary *binary,
                           struct v2_tensor *out, struct error *err) {
    struct members members = {.tree = tree, .object = val};
    struct v2_protocol_params wire = {0};
    uint64_t n_elements = 0;
    *out = (struct v2_tensor){0};
    enum status status = json_expect_object(tree, val, err);
    if (status != ST_OK) {
        return status;
    }
    json_find(val, member_names, N_MEMBERS, members.val);
    status = read_name(&members, &out->tensor, err);
    if (status == ST_OK) {
        status = read_datatype(&members, &out->tensor, err);
    }
    if (status == ST_OK) {
        status = read_shape(&members, &out->tensor, err);
    }
    if (status == ST_OK) {
        status =
            v2_shape_count(tree, members.val[SHAPE], out->tensor.shape, limits, &n_elements, err);
    }
    if (status == ST_OK && members.val[PARAMETERS]) {
        status = v2_params_read(tree, members.val[PARAMETERS], of, &wire, &out->params, err);
    }
    if (status == ST_OK) {
        status = read_bytes(&members, &wire, n_elements, binary, out, err);
    }
    return status;
}
