/* The inference request: its members, in the order in which they are read. */
#include "codec/kserve/request.h"

#include <inttypes.h>

#include "codec/json/tree.h"
#include "codec/kserve/tensor.h"
#include "core/base/num.h"

/* ---- Inference-Header-Content-Length --------------------------------------------------------- */

enum status v2_header_length_parse(size_t n_fields, struct str value, enum v2_header_kind *kind,
                                   uint64_t *json_bytes, struct error *err) {
    *kind = V2_HEADER_ABSENT;
    *json_bytes = 0;
    if (n_fields == 0) {
        return ST_OK;
    }
    if (n_fields > 1) {
        return error_set(err, ST_BAD_FRAMING,
                         "expected one Inference-Header-Content-Length, got %zu", n_fields);
    }
    uint64_t length;
    if (!num_parse_u64(value, &length) || length > INT64_MAX) {
        return error_set(err, ST_BAD_FRAMING,
                         "Inference-Header-Content-Length: expected a whole number from 0 to "
                         "%" PRId64 " in decimal digits, got \"%.*s\"",
                         INT64_MAX, STR_ARG(value));
    }
    /* 0 announces a raw request: binary-tensor-data, "Raw Binary Request". */
    *kind = length == 0 ? V2_HEADER_RAW : V2_HEADER_JSON;
    *json_bytes = length;
    return ST_OK;
}

enum { ID, PARAMETERS, INPUTS, OUTPUTS, N_MEMBERS };

static const struct str member_names[N_MEMBERS] = {
    [ID] = {"id", 2},
    [PARAMETERS] = {"parameters", 10},
    [INPUTS] = {"inputs", 6},
    [OUTPUTS] = {"outputs", 7},
};

/* Members of a requested output. */
enum { WANTED_NAME, WANTED_PARAMETERS, N_WANTED_MEMBERS };

static const struct str wanted_names[N_WANTED_MEMBERS] = {
    [WANTED_NAME] = {"name", 4},
    [WANTED_PARAMETERS] = {"parameters", 10},
};

/* ---- inputs ---------------------------------------------------------------------------------- */

struct reader {
    struct json_tree tree;
    const struct json_limits *limits;
    struct v2_binary binary;
    struct json_span *floats; /* the data of inputs where NaN and infinities are allowed */
    size_t n_floats;
};

/* Records where non-finite numbers are allowed; only called when the text has any. */
static enum status allow_non_finite(struct reader *reader, const struct v2_tensor *tensor,
                                    size_t total, struct error *err) {
    if (tensor->form != V2_FORM_JSON || !datatype_is_float(tensor->tensor.datatype)) {
        return ST_OK;
    }
    struct json_span *spans = json_array_grow(reader->tree.arena, reader->floats, reader->n_floats,
                                              total, sizeof(*reader->floats));
    if (!spans) {
        return error_no_memory(err, "the request");
    }
    spans[reader->n_floats++] = json_value_span(tensor->data);
    reader->floats = spans;
    return ST_OK;
}

static enum status read_inputs(struct reader *reader, yyjson_val *array,
                               struct infer_request *infer, struct error *err) {
    enum status status = json_expect_array(&reader->tree, array, err);
    size_t total = status == ST_OK ? json_count(array) : 0;
    yyjson_val *val = total > 0 ? json_first(array) : NULL;
    for (; status == ST_OK && infer->n_inputs < total; val = json_next(val)) {
        struct v2_tensor tensor;
        status = v2_tensor_read(&reader->tree, val, V2_PARAMS_OF_INPUT, reader->limits,
                                &reader->binary, &tensor, err);
        if (status == ST_OK && reader->tree.non_finite) {
            status = allow_non_finite(reader, &tensor, total, err);
        }
        if (status != ST_OK) {
            return status;
        }
        struct infer_input *inputs = json_array_grow(
            reader->tree.arena, infer->inputs, infer->n_inputs, total, sizeof(*infer->inputs));
        if (!inputs) {
            return error_no_memory(err, "the request");
        }
        infer->inputs = inputs;
        inputs[infer->n_inputs++] = (struct infer_input){
            .tensor = tensor.tensor, .params = tensor.params, .region = tensor.region};
    }
    return status;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static enum status read_wanted(struct reader *reader, yyjson_val *object,
                               struct infer_requested_output *wanted, enum v2_form *form,
                               struct error *err) {
    const struct json_tree *tree = &reader->tree;
    yyjson_val *found[N_WANTED_MEMBERS];
    struct v2_protocol_params wire = {0};
    *wanted = (struct infer_requested_output){0};
    enum status status = json_expect_object(tree, object, err);
    if (status != ST_OK) {
        return status;
    }
    json_find(object, wanted_names, N_WANTED_MEMBERS, found);
    status = found[WANTED_NAME] ? json_read_string(tree, found[WANTED_NAME], &wanted->name, err)
                                : json_error_missing(tree, object, "name", "a string", err);
    if (status == ST_OK && found[WANTED_PARAMETERS]) {
        status = v2_params_read(tree, found[WANTED_PARAMETERS], V2_PARAMS_OF_REQUESTED_OUTPUT,
                                &wire, &wanted->params, err);
    }
    *form = wire.form;
    wanted->n_classes = wire.n_classes;
    wanted->region = wire.region;
    return status;
}

static enum status read_outputs(struct reader *reader, yyjson_val *array, struct v2_request *out,
                                struct error *err) {
    struct infer_request *infer = &out->infer;
    enum v2_form *forms = NULL;
    enum status status = json_expect_array(&reader->tree, array, err);
    size_t total = status == ST_OK ? json_count(array) : 0;
    yyjson_val *val = total > 0 ? json_first(array) : NULL;
    for (; status == ST_OK && infer->n_wanted < total; val = json_next(val)) {
        size_t n = infer->n_wanted;
        struct infer_requested_output *wanted =
            json_array_grow(reader->tree.arena, infer->wanted, n, total, sizeof(*infer->wanted));
        forms = json_array_grow(reader->tree.arena, forms, n, total, sizeof(*forms));
        if (!wanted || !forms) {
            return error_no_memory(err, "the request");
        }
        infer->wanted = wanted;
        status = read_wanted(reader, val, &wanted[n], &forms[n], err);
        infer->n_wanted++;
    }
    out->forms = forms;
    return status;
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum status read_request(struct reader *reader, struct v2_request *out, struct error *err) {
    const struct json_tree *tree = &reader->tree;
    yyjson_val *found[N_MEMBERS] = {NULL};
    struct v2_protocol_params wire = {0};
    enum status status = json_expect_object(tree, tree->root, err);
    if (status == ST_OK) {
        json_find(tree->root, member_names, N_MEMBERS, found);
    }
    if (status == ST_OK && found[ID]) {
        status = json_read_string(tree, found[ID], &out->infer.id, err);
    }
    if (status == ST_OK && found[PARAMETERS]) {
        status = v2_params_read(tree, found[PARAMETERS], V2_PARAMS_OF_REQUEST, &wire,
                                &out->infer.params, err);
        out->binary_default = wire.form == V2_FORM_BINARY;
        out->non_finite = wire.non_finite;
    }
    if (status == ST_OK) {
        status = found[INPUTS]
                     ? read_inputs(reader, found[INPUTS], &out->infer, err)
                     : json_error_missing(tree, tree->root, "inputs", "an array of tensors", err);
    }
    if (status == ST_OK && found[OUTPUTS]) {
        status = read_outputs(reader, found[OUTPUTS], out, err);
    }
    if (status == ST_OK) {
        status = v2_binary_check_consumed(&reader->binary, tree, err);
    }
    if (status == ST_OK && tree->non_finite) {
        status = json_tree_check_finite(tree, reader->floats, reader->n_floats, err);
    }
    return status;
}

enum status v2_request_decode(struct arena *arena, struct str body, size_t json_bytes,
                              const struct json_limits *limits, struct v2_request *out,
                              struct error *err) {
    struct reader reader = {.limits = limits};
    *out = (struct v2_request){.infer.arena = arena, .infer.batch = 1};
    if (json_bytes > body.len) {
        return error_set(err, ST_BAD_FRAMING,
                         "Inference-Header-Content-Length is %zu, the body has only %zu bytes",
                         json_bytes, body.len);
    }
    reader.binary = v2_binary_start(body, json_bytes);
    enum status status = json_tree_parse_body(&reader.tree, "the request", arena,
                                              str_make(body.ptr, json_bytes), limits, err);
    if (status == ST_OK) {
        status = read_request(&reader, out, err);
    }
    json_tree_free_values(&reader.tree); /* an error's response may wait to be read */
    return status;
}
