/* Decoding of an inference response. A tensor whose bytes do not match its shape and datatype is
 * an error. */
#include "codec/kserve/response_decode.h"

#include <inttypes.h>

#include "codec/json/tree.h"
#include "codec/kserve/tensor.h"
#include "core/tensor/bytes.h"

enum { ID, MODEL_NAME, MODEL_VERSION, PARAMETERS, OUTPUTS, N_MEMBERS };

static const struct str member_names[N_MEMBERS] = {
    [ID] = {"id", 2},
    [MODEL_NAME] = {"model_name", 10},
    [MODEL_VERSION] = {"model_version", 13},
    [PARAMETERS] = {"parameters", 10},
    [OUTPUTS] = {"outputs", 7},
};

struct reader {
    struct json_tree tree;
    const struct json_limits *limits;
    struct v2_binary binary;
    struct v2_client_response *answer;
    struct tensor *outputs;
    enum v2_form *forms;
    size_t n_outputs;
    struct json_span *floats; /* the data of outputs where NaN and infinities are allowed */
    size_t n_floats;
};

/* Checks binary data: as many bytes, or framed elements, as the shape has. */
static enum status check_bytes(const struct json_tree *tree, yyjson_val *val,
                               const struct tensor *tensor, struct error *err) {
    uint64_t expected = 0;
    if (tensor->datatype == DT_BYTES) {
        struct str data = str_make(tensor->pieces[0].data, tensor->n_bytes);
        if (!shape_elements(tensor->shape, &expected)) {
            return json_error(tree, val, ST_BAD_SHAPE, err, "too many elements");
        }
        return bytes_check(data, expected, tensor->name, err);
    }
    if (shape_bytes(tensor->shape, tensor->datatype, &expected) && expected == tensor->n_bytes) {
        return ST_OK;
    }
    char shape[SHAPE_TEXT_BYTES];
    return json_error(tree, val, ST_BAD_DATA, err,
                      "expected %" PRIu64 " bytes for %s of shape %s, got %zu", expected,
                      datatype_name(tensor->datatype), shape_print(tensor->shape, shape),
                      tensor->n_bytes);
}

static enum status read_output(struct reader *reader, yyjson_val *val, struct error *err) {
    struct v2_tensor tensor;
    enum status status = v2_tensor_read(&reader->tree, val, V2_PARAMS_OF_OUTPUT, reader->limits,
                                        &reader->binary, &tensor, err);
    if (status == ST_OK && tensor.form == V2_FORM_BINARY) {
        status = check_bytes(&reader->tree, val, &tensor.tensor, err);
    }
    if (status == ST_OK && tensor.form == V2_FORM_JSON &&
        datatype_is_float(tensor.tensor.datatype)) {
        reader->floats[reader->n_floats++] = json_value_span(tensor.data);
    }
    reader->outputs[reader->n_outputs] = tensor.tensor;
    reader->forms[reader->n_outputs++] = tensor.form;
    return status;
}

/* Makes capacity for one more output, of `total`. */
static enum status grow_outputs(struct reader *reader, size_t total, struct error *err) {
    struct arena *arena = reader->tree.arena;
    size_t n = reader->n_outputs, n_floats = reader->n_floats;
    struct tensor *outputs = json_array_grow(arena, reader->outputs, n, total, sizeof(*outputs));
    enum v2_form *forms = json_array_grow(arena, reader->forms, n, total, sizeof(*forms));
    struct json_span *floats =
        json_array_grow(arena, reader->floats, n_floats, total, sizeof(*floats));
    if (!outputs || !forms || !floats) {
        return error_no_memory(err, "the answer");
    }
    reader->outputs = outputs;
    reader->forms = forms;
    reader->floats = floats;
    return ST_OK;
}

static enum status read_outputs(struct reader *reader, yyjson_val *array, struct error *err) {
    enum status status = json_expect_array(&reader->tree, array, err);
    size_t total = status == ST_OK ? json_count(array) : 0;
    yyjson_val *val = total > 0 ? json_first(array) : NULL;
    for (; status == ST_OK && reader->n_outputs < total; val = json_next(val)) {
        status = grow_outputs(reader, total, err);
        if (status == ST_OK) {
            status = read_output(reader, val, err);
        }
    }
    reader->answer->infer.outputs = reader->outputs;
    reader->answer->infer.n_outputs = reader->n_outputs;
    reader->answer->forms = reader->forms;
    return status;
}

/* Reads a string that may be absent. */
static enum status read_text(const struct json_tree *tree, yyjson_val *val, struct str *out,
                             struct error *err) {
    return val ? json_read_string(tree, val, out, err) : ST_OK;
}

static enum status read_response(struct reader *reader, struct error *err) {
    const struct json_tree *tree = &reader->tree;
    struct v2_client_response *out = reader->answer;
    yyjson_val *found[N_MEMBERS] = {NULL};
    struct v2_protocol_params wire;
    enum status status = json_expect_object(tree, tree->root, err);
    if (status != ST_OK) {
        return status;
    }
    json_find(tree->root, member_names, N_MEMBERS, found);
    status = read_text(tree, found[ID], &out->id, err);
    if (status == ST_OK) {
        status = read_text(tree, found[MODEL_NAME], &out->model_name, err);
    }
    if (status == ST_OK) {
        status = read_text(tree, found[MODEL_VERSION], &out->model_version, err);
    }
    if (status == ST_OK && found[PARAMETERS]) {
        status = v2_params_read(tree, found[PARAMETERS], V2_PARAMS_OF_RESPONSE, &wire,
                                &out->infer.params, err);
    }
    if (status == ST_OK) {
        status = found[OUTPUTS]
                     ? read_outputs(reader, found[OUTPUTS], err)
                     : json_error_missing(tree, tree->root, "outputs", "an array of tensors", err);
    }
    if (status == ST_OK) {
        status = v2_binary_check_consumed(&reader->binary, tree, err);
    }
    if (status == ST_OK && tree->non_finite) {
        status = json_tree_check_finite(tree, reader->floats, reader->n_floats, err);
    }
    return status;
}

enum status v2_response_decode(struct arena *arena, struct str body, size_t json_bytes,
                               bool may_lack_data, const struct json_limits *limits,
                               struct v2_client_response *out, struct error *err) {
    struct reader reader = {.limits = limits, .answer = out};
    *out = (struct v2_client_response){.infer.error.status = ST_OK};
    if (json_bytes > body.len) {
        return error_set(err, ST_BAD_FRAMING,
                         "Inference-Header-Content-Length is %zu, the body has only %zu bytes",
                         json_bytes, body.len);
    }
    reader.binary = v2_binary_start(body, json_bytes);
    reader.binary.may_lack_data = may_lack_data;
    enum status status = json_tree_parse_body(&reader.tree, "the answer", arena,
                                              str_make(body.ptr, json_bytes), limits, err);
    if (status == ST_OK) {
        reader.tree.replaced_non_finite = true;
        status = read_response(&reader, err);
        json_tree_free_values(&reader.tree);
    }
    return status;
}
