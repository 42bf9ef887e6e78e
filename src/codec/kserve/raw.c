/* The raw binary request. Datatype and shape, which the missing JSON would contain, are deduced
 * from the model's specification. */
#include "codec/kserve/raw.h"

#include <assert.h>
#include <inttypes.h>

#include "codec/kserve/encode.h"
#include "codec/kserve/request.h"
#include "codec/kserve/request_encode.h"
#include "core/tensor/bytes.h"

/* ---- server: decoding ------------------------------------------------------------------------ */

/* The messages begin as the reference server's do: clients compare them.
 * Can the shape be deduced? Clause: "Raw Binary Request", constraints 1 and 2. *variable: the
 * index of the variable dimension, the batch dimension excluded (SIZE_MAX: none). */
static enum status check_model(const struct model_spec *model, size_t *variable,
                               struct error *err) {
    char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
    *variable = SIZE_MAX;
    if (model->n_inputs != 1) {
        return error_set(err, ST_BAD_INPUTS,
                         "Raw request must only have 1 input (found 1) to be deduced but got %zu "
                         "inputs in %s model "
                         "configuration (Inference-Header-Content-Length: 0)",
                         model->n_inputs, quote_name_single(model->name, name));
    }
    const struct tensor_spec *input = &model->inputs[0];
    size_t first = model->max_batch_size > 0 ? 1 : 0;
    size_t n_variable = 0;
    assert(input->shape.rank >= first);
    for (size_t i = first; i < input->shape.rank; i++) {
        if (input->shape.dims[i] == -1) {
            *variable = i;
            n_variable++;
        }
    }
    if (n_variable > (input->datatype == DT_BYTES ? 0 : 1)) {
        quote_name_single(input->name, name);
        shape_print(input->shape, shape);
        return input->datatype == DT_BYTES
                   ? error_set(
                         err, ST_BAD_INPUTS,
                         "For BYTE datatype raw input %s, the model must have input shape [1]; "
                         "it has %s (Inference-Header-Content-Length: 0)",
                         name, shape)
                   : error_set(
                         err, ST_BAD_INPUTS,
                         "The shape of the raw input %s can not be deduced because there are "
                         "more than one variable-sized dimension: it is %s, of which %zu%s are "
                         "variable (Inference-Header-Content-Length: 0)",
                         name, shape, n_variable, first > 0 ? " beside the batch's" : "");
    }
    return ST_OK;
}

/* *out: the bytes of the known dimensions; for BYTES, their elements. */
static enum status measure_known(const struct tensor_spec *input, int64_t *dims, size_t variable,
                                 uint64_t *out, struct error *err) {
    struct shape shape = {dims, input->shape.rank};
    char name[QUOTED_NAME_BYTES], text[SHAPE_TEXT_BYTES];
    if (variable != SIZE_MAX) {
        dims[variable] = 1;
    }
    if (input->datatype == DT_BYTES ? shape_elements(shape, out)
                                    : shape_bytes(shape, input->datatype, out)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_SHAPE, "input %s: shape %s takes more than 2^63-1 bytes",
                     quote_name(input->name, name), shape_print(input->shape, text));
}

static enum status wrong_size(const struct tensor_spec *input, struct str body, uint64_t unit,
                              bool multiple, struct error *err) {
    char name[QUOTED_NAME_BYTES], text[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_DATA,
                     "raw request: expected %s%" PRIu64 " bytes for input %s (%s of shape %s, "
                     "batch 1 where it batches), got %zu",
                     multiple ? "a multiple of " : "", unit, quote_name(input->name, name),
                     datatype_name(input->datatype), shape_print(input->shape, text), body.len);
}

/* Clause: "If the input data type is non-BYTE, the number of variable size dimensions is at most
 * 1". */
static enum status deduce_shape(const struct tensor_spec *input, struct str body, int64_t *dims,
                                size_t variable, uint64_t *n_elements, struct error *err) {
    uint64_t unit;
    enum status status = measure_known(input, dims, variable, &unit, err);
    if (status != ST_OK) {
        return status;
    }
    *n_elements = body.len / datatype_size(input->datatype);
    if (variable == SIZE_MAX) {
        return unit == body.len ? ST_OK : wrong_size(input, body, unit, false, err);
    }
    if (unit == 0) { /* a fixed dimension of 0: empty, whatever the variable one is */
        dims[variable] = 0;
        return body.len == 0 ? ST_OK : wrong_size(input, body, 0, false, err);
    }
    if (body.len % unit != 0) {
        return wrong_size(input, body, unit, true, err);
    }
    dims[variable] = (int64_t)(body.len / unit);
    return ST_OK;
}

/* Clause: "If the data type is BYTE, the shape must be [1]": the whole body is the one element.
 * Any shape of one element is accepted. The length of the element is a piece of its own, so that
 * the body is not copied. */
static enum status frame_body(struct arena *arena, const struct tensor_spec *input, struct str body,
                              int64_t *dims, struct tensor *tensor, struct error *err) {
    char name[QUOTED_NAME_BYTES], text[SHAPE_TEXT_BYTES];
    uint64_t n_elements;
    enum status status = measure_known(input, dims, SIZE_MAX, &n_elements, err);
    if (status != ST_OK) {
        return status;
    }
    if (n_elements != 1) {
        return error_set(err, ST_BAD_INPUTS,
                         "For BYTE datatype raw input %s, the model must have input shape [1]; it "
                         "has %s (Inference-Header-Content-Length: 0)",
                         quote_name_single(input->name, name), shape_print(input->shape, text));
    }
    if (body.len > UINT32_MAX) {
        return error_set(err, ST_BAD_DATA,
                         "raw request: a BYTES element has at most 4294967295 bytes, got %zu",
                         body.len);
    }
    struct piece *pieces = arena_alloc(arena, 2 * sizeof(*pieces));
    unsigned char *length = arena_alloc(arena, sizeof(uint32_t));
    if (!pieces || !length) {
        return error_no_memory(err, "the request");
    }
    bytes_encode_length(length, (uint32_t)body.len);
    pieces[0] = (struct piece){length, sizeof(uint32_t)};
    pieces[1] = (struct piece){body.ptr, body.len};
    tensor->pieces = pieces;
    tensor->n_pieces = body.len > 0 ? 2 : 1;
    tensor->n_bytes = sizeof(uint32_t) + body.len;
    return ST_OK;
}

static enum status view_body(struct arena *arena, const struct tensor_spec *input, struct str body,
                             const struct json_limits *limits, int64_t *dims, size_t variable,
                             struct tensor *tensor, struct error *err) {
    char name[QUOTED_NAME_BYTES];
    uint64_t n_elements = 0;
    enum status status = deduce_shape(input, body, dims, variable, &n_elements, err);
    if (status != ST_OK) {
        return status;
    }
    if (n_elements > limits->max_tensor_elements) {
        return error_set(err, ST_TOO_MANY_ELEMENTS,
                         "raw request: input %s gets %" PRIu64 " elements; the limit is %" PRIu64
                         " (--max-tensor-elements)",
                         quote_name(input->name, name), n_elements, limits->max_tensor_elements);
    }
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    if (!piece) {
        return error_no_memory(err, "the request");
    }
    *piece = (struct piece){body.ptr, body.len};
    tensor->pieces = piece;
    tensor->n_pieces = 1;
    tensor->n_bytes = body.len;
    return ST_OK;
}

enum status v2_raw_decode(struct arena *arena, struct str body, const struct model_spec *model,
                          const struct json_limits *limits, struct v2_request *out,
                          struct error *err) {
    size_t variable;
    /* Clause: "all the model output will be requested to be returned in binary tensor form". */
    *out = (struct v2_request){.infer = {.arena = arena, .batch = 1}, .binary_default = true};
    enum status status = check_model(model, &variable, err);
    if (status != ST_OK) {
        return status;
    }
    const struct tensor_spec *spec = &model->inputs[0];
    struct infer_input *input = arena_calloc(arena, 1, sizeof(*input));
    int64_t *dims = arena_alloc(arena, spec->shape.rank * sizeof(*dims));
    if (!input || !dims) {
        return error_no_memory(err, "the request");
    }
    for (size_t i = 0; i < spec->shape.rank; i++) {
        dims[i] = spec->shape.dims[i];
    }
    if (model->max_batch_size > 0) { /* "the request will be treated as batch-1 request" */
        dims[0] = 1;
    }
    input->tensor = (struct tensor){
        .name = spec->name,
        .datatype = spec->datatype,
        .shape = {dims, spec->shape.rank},
    };
    out->infer.inputs = input;
    out->infer.n_inputs = 1;
    return spec->datatype == DT_BYTES
               ? frame_body(arena, spec, body, dims, &input->tensor, err)
               : view_body(arena, spec, body, limits, dims, variable, &input->tensor, err);
}

/* ---- client: encoding ------------------------------------------------------------------------ */

static enum status wrong_tensor_size(const struct tensor *tensor, struct error *err) {
    char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_DATA, "input %s: %zu bytes don't fit %s of shape %s%s",
                     quote_name(tensor->name, name), tensor->n_bytes,
                     datatype_name(tensor->datatype), shape_print(tensor->shape, shape),
                     tensor->datatype == DT_BYTES ? " (a raw request has one element)" : "");
}

/* Copies the first bytes of a tensor, which may span pieces. */
static void copy_front(const struct tensor *tensor, unsigned char *out, size_t n_bytes) {
    for (size_t i = 0; n_bytes > 0; i++) {
        size_t n = tensor->pieces[i].n_bytes < n_bytes ? tensor->pieces[i].n_bytes : n_bytes;
        if (n > 0) {
            memcpy(out, tensor->pieces[i].data, n);
        }
        out += n;
        n_bytes -= n;
    }
}

/* Clause: "If the data type is BYTE, the shape must be [1]": the body's length is its length. */
static enum status check_element(const struct tensor *tensor, struct error *err) {
    unsigned char front[BYTES_LENGTH_BYTES];
    unsigned char want[BYTES_LENGTH_BYTES];
    uint64_t n_elements;
    if (!shape_elements(tensor->shape, &n_elements) || n_elements != 1 ||
        tensor->n_bytes < BYTES_LENGTH_BYTES || tensor->n_bytes - BYTES_LENGTH_BYTES > UINT32_MAX) {
        return wrong_tensor_size(tensor, err);
    }
    copy_front(tensor, front, BYTES_LENGTH_BYTES);
    bytes_encode_length(want, (uint32_t)(tensor->n_bytes - BYTES_LENGTH_BYTES));
    return memcmp(front, want, BYTES_LENGTH_BYTES) == 0 ? ST_OK : wrong_tensor_size(tensor, err);
}

/* Removes the first `n_bytes` bytes from the tensor's pieces. */
static void drop_front(struct v2_pieces *pieces, size_t n_bytes) {
    size_t first = 1; /* slot 0 is the JSON's */
    pieces->n_bytes -= n_bytes;
    while (n_bytes > 0) {
        struct piece *piece = &pieces->items[first];
        size_t n = piece->n_bytes < n_bytes ? piece->n_bytes : n_bytes;
        *piece = (struct piece){(const char *)piece->data + n, piece->n_bytes - n};
        n_bytes -= n;
        first += piece->n_bytes == 0;
    }
    memmove(pieces->items + 1, pieces->items + first, (pieces->n - first) * sizeof(struct piece));
    pieces->n -= first - 1;
}

enum status v2_raw_encode(struct arena *arena, const struct tensor *tensor,
                          struct v2_request_body *out, struct error *err) {
    struct v2_pieces pieces;
    uint64_t n_bytes;
    enum status status = ST_OK;
    *out = (struct v2_request_body){.binary = true};
    if (tensor->datatype == DT_BYTES) {
        status = check_element(tensor, err);
    } else if (!shape_bytes(tensor->shape, tensor->datatype, &n_bytes) ||
               n_bytes != tensor->n_bytes) {
        status = wrong_tensor_size(tensor, err);
    }
    if (status != ST_OK) {
        return status;
    }
    if (!v2_pieces_init(&pieces, arena, tensor->n_pieces)) {
        return error_no_memory(err, "the request");
    }
    v2_pieces_add(&pieces, tensor);
    if (tensor->datatype == DT_BYTES) {
        drop_front(&pieces, BYTES_LENGTH_BYTES);
    }
    out->json = str_make("", 0);
    out->pieces = v2_pieces_finish(&pieces, out->json);
    out->n_pieces = pieces.n;
    out->n_bytes = pieces.n_bytes;
    return ST_OK;
}
