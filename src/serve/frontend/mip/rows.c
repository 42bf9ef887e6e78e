/* Cutting an output into rows. Its bytes fit its shape: serve/scheduler/response_check.c has seen
 * to that, the framing of BYTES included. */
#include "serve/frontend/mip/rows.h"

#include <assert.h>
#include <inttypes.h>

#include "core/tensor/bytes.h"

static enum status error_not_batched(const struct tensor *tensor, uint64_t n_rows,
                                     struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES], shape[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_OUTPUT,
                     "output %s: expected the batch of %" PRIu64 " as its first dimension, the "
                     "model gave shape %s",
                     tensor_name_print(tensor->name, name), n_rows,
                     shape_print(tensor->shape, shape));
}

enum status mip_rows_init(struct mip_rows *rows, const struct tensor *tensor, uint64_t n_rows,
                          struct error *err) {
    struct shape shape = tensor->shape;
    assert(tensor->n_pieces <= 1);
    *rows = (struct mip_rows){.tensor = tensor, .shape = shape, .row_bytes = tensor->n_bytes};
    if (tensor->n_pieces == 1) {
        rows->rest = str_make(tensor->pieces[0].data, tensor->pieces[0].n_bytes);
    }
    if (n_rows > 0) {
        if (shape.rank == 0 || (uint64_t)shape.dims[0] != n_rows) {
            return error_not_batched(tensor, n_rows, err);
        }
        rows->shape = (struct shape){shape.dims + 1, shape.rank - 1};
        rows->row_bytes = (size_t)(tensor->n_bytes / n_rows);
    }
    if (!shape_elements(rows->shape, &rows->n_elements)) {
        return error_not_batched(tensor, n_rows, err); /* cannot be: the whole has been counted */
    }
    return ST_OK;
}

void mip_rows_next(struct mip_rows *rows, struct tensor *out) {
    struct str before = rows->rest;
    if (rows->tensor->datatype == DT_BYTES) {
        struct str element;
        for (uint64_t i = 0; i < rows->n_elements && bytes_next(&rows->rest, &element); i++) {
        }
    } else if (rows->row_bytes > 0) {
        assert(rows->rest.len >= rows->row_bytes);
        rows->rest = str_make(before.ptr + rows->row_bytes, before.len - rows->row_bytes);
    }
    rows->piece = (struct piece){before.ptr, before.len - rows->rest.len};
    *out = (struct tensor){.name = rows->tensor->name,
                           .datatype = rows->tensor->datatype,
                           .shape = rows->shape,
                           .pieces = &rows->piece,
                           .n_pieces = rows->piece.n_bytes > 0 ? 1 : 0,
                           .n_bytes = rows->piece.n_bytes};
}
