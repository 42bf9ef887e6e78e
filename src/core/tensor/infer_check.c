/* Does a request fit its model? Everything a backend relies on is established here, once, whatever
 * protocol the request came by: which inputs are there, their datatypes, shapes and batch size,
 * that the bytes are as many as the shape says and are framed or valued as the datatype demands. It
 * refuses to mend a request, and to look at the bytes of numbers. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "core/tensor/bytes.h"
#include "core/tensor/infer.h"
#include "core/tensor/infer_check_names.h"
#include "core/tensor/pieces.h"

/* ---- datatype and shape ---------------------------------------------------------------------- */

static enum status check_datatype(const struct tensor *tensor, const struct tensor_spec *spec,
                                  struct error *err) {
    if (tensor->datatype == spec->datatype) {
        return ST_OK;
    }
    char name[TENSOR_NAME_TEXT_BYTES];
    return error_set(err, ST_BAD_DATATYPE, "input %s: expected datatype %s, got %s",
                     tensor_name_print(tensor->name, name), datatype_name(spec->datatype),
                     datatype_name(tensor->datatype));
}

static enum status shape_mismatch_error(const struct tensor *tensor, const struct tensor_spec *spec,
                                        struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES], want[SHAPE_TEXT_BYTES], got[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_SHAPE, "input %s: expected shape %s (-1: any size), got %s",
                     tensor_name_print(tensor->name, name), shape_print(spec->shape, want),
                     shape_print(tensor->shape, got));
}

/* A shape whose elements can't be counted: a negative dimension, or too many. */
static enum status invalid_shape_error(const struct tensor *tensor, struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES], got[SHAPE_TEXT_BYTES];
    tensor_name_print(tensor->name, name);
    shape_print(tensor->shape, got);
    for (size_t i = 0; i < tensor->shape.rank; i++) {
        if (tensor->shape.dims[i] < 0) {
            return error_set(err, ST_BAD_SHAPE,
                             "input %s: expected dimensions of 0 or more, got %" PRId64
                             " at index %zu of shape %s",
                             name, tensor->shape.dims[i], i, got);
        }
    }
    return error_set(err, ST_BAD_SHAPE, "input %s: shape %s has more than 2^63-1 elements or bytes",
                     name, got);
}

static enum status check_batch(struct infer_request *request, size_t index,
                               const struct model_spec *model, struct error *err) {
    const struct tensor *tensor = &request->inputs[index].tensor;
    char name[TENSOR_NAME_TEXT_BYTES], got[SHAPE_TEXT_BYTES], first[TENSOR_NAME_TEXT_BYTES];
    assert(tensor->shape.rank > 0); /* it fits a specification with a batch dimension */
    uint64_t batch = (uint64_t)tensor->shape.dims[0];
    if (batch < 1 || batch > model->max_batch_size) {
        return error_set(err, ST_BAD_SHAPE,
                         "input %s: expected a batch size (the first dimension) from 1 to %" PRIu64
                         ", the model's max_batch_size; got shape %s",
                         tensor_name_print(tensor->name, name), model->max_batch_size,
                         shape_print(tensor->shape, got));
    }
    if (index > 0 && batch != request->batch) {
        return error_set(err, ST_BAD_SHAPE,
                         "input %s: expected batch size %" PRIu64 " (the first dimension) as in "
                         "input %s, got shape %s",
                         tensor_name_print(tensor->name, name), request->batch,
                         tensor_name_print(request->inputs[0].tensor.name, first),
                         shape_print(tensor->shape, got));
    }
    request->batch = batch;
    return ST_OK;
}

static enum status check_shape(struct infer_request *request, size_t index,
                               const struct model_spec *model, struct error *err) {
    const struct infer_input *input = &request->inputs[index];
    const struct tensor_spec *spec = &model->inputs[input->spec];
    uint64_t elements;
    if (input->tensor.shape.rank > SHAPE_MAX_RANK) {
        char name[TENSOR_NAME_TEXT_BYTES];
        return error_set(err, ST_BAD_SHAPE, "input %s: expected at most %d dimensions, got %zu",
                         tensor_name_print(input->tensor.name, name), SHAPE_MAX_RANK,
                         input->tensor.shape.rank);
    }
    if (!shape_elements(input->tensor.shape, &elements)) {
        return invalid_shape_error(&input->tensor, err);
    }
    if (!shape_matches(input->tensor.shape, spec->shape)) {
        return shape_mismatch_error(&input->tensor, spec, err);
    }
    return model->max_batch_size > 0 ? check_batch(request, index, model, err) : ST_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The index of the first byte that is neither 0 nor 1, or `n`. */
static size_t find_not_bool(const unsigned char *data, size_t n) {
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if ((word & 0xfefefefefefefefeu) != 0) {
            break;
        }
    }
    while (i < n && data[i] <= 1) {
        i++;
    }
    return i;
}

static enum status check_bools(const struct tensor *tensor, struct error *err) {
    size_t before = 0;
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const unsigned char *data = tensor->pieces[i].data;
        size_t n = tensor->pieces[i].n_bytes;
        size_t at = find_not_bool(data, n);
        if (at < n) {
            char name[TENSOR_NAME_TEXT_BYTES];
            return error_set(
                err, ST_BAD_DATA,
                "input %s: expected the byte 0 or 1 for each BOOL, got %u at element %zu",
                tensor_name_print(tensor->name, name), data[at], before + at);
        }
        before += n;
    }
    return ST_OK;
}

/* Makes one piece of a BYTES tensor's, whose elements may straddle them. */
static enum status gather_copy(struct infer_request *request, struct tensor *tensor,
                               struct error *err) {
    char *data = arena_alloc(request->arena, tensor->n_bytes);
    struct piece *piece = arena_alloc(request->arena, sizeof(*piece));
    if (!data || !piece) {
        return error_set(err, ST_NO_MEMORY, "out of memory while gathering a BYTES input");
    }
    size_t n_bytes = pieces_copy(tensor->pieces, tensor->n_pieces, data, tensor->n_bytes);
    assert(n_bytes == tensor->n_bytes);
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)n_bytes);
    *piece = (struct piece){data, n_bytes};
    tensor->pieces = piece;
    tensor->n_pieces = 1;
    return ST_OK;
}

static enum status check_bytes_elements(struct infer_request *request, struct tensor *tensor,
                                        struct error *err) {
    uint64_t elements = 0;
    if (tensor->n_pieces > 1) {
        enum status status = gather_copy(request, tensor, err);
        if (status != ST_OK) {
            return status;
        }
    }
    if (!shape_elements(tensor->shape, &elements)) {
        return invalid_shape_error(tensor, err);
    }
    struct str data = {0};
    if (tensor->n_pieces == 1) {
        data = str_make(tensor->pieces[0].data, tensor->pieces[0].n_bytes);
    }
    return bytes_check(data, elements, tensor->name, err);
}

static enum status check_data(struct infer_request *request, struct tensor *tensor,
                              struct error *err) {
    uint64_t expected;
    if (tensor->datatype == DT_BYTES) {
        return check_bytes_elements(request, tensor, err);
    }
    if (!shape_bytes(tensor->shape, tensor->datatype, &expected)) {
        return invalid_shape_error(tensor, err);
    }
    if (expected != tensor->n_bytes) {
        char name[TENSOR_NAME_TEXT_BYTES], shape[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BAD_DATA,
                         "input %s: expected %" PRIu64 " bytes of data for shape %s of %s, got %zu",
                         tensor_name_print(tensor->name, name), expected,
                         shape_print(tensor->shape, shape), datatype_name(tensor->datatype),
                         tensor->n_bytes);
    }
    return tensor->datatype == DT_BOOL ? check_bools(tensor, err) : ST_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum status infer_check(struct infer_request *request, const struct model_spec *model,
                        struct error *err) {
    request->batch = 1;
    enum status status = infer_check_input_names(request, model, err);
    if (status == ST_OK) {
        status = infer_check_output_names(request, model, err);
    }
    for (size_t i = 0; status == ST_OK && i < request->n_inputs; i++) {
        struct infer_input *input = &request->inputs[i];
        status = check_datatype(&input->tensor, &model->inputs[input->spec], err);
        if (status == ST_OK) {
            status = check_shape(request, i, model, err);
        }
        if (status == ST_OK) {
            status = check_data(request, &input->tensor, err);
        }
    }
    return status;
}
