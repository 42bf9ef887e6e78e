/* An output of a call, row by row: each element of the batch gets what is its own. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_ROWS_H
#define SLUICE_SERVE_FRONTEND_MIP_ROWS_H

#include <stdint.h>

#include "core/base/status.h"
#include "core/tensor/tensor.h"

struct mip_rows {
    const struct tensor *tensor;
    struct shape shape;  /* of a row */
    uint64_t n_elements; /* in a row */
    size_t row_bytes;    /* BYTES: rows differ */
    struct str rest;     /* what no row has had yet */
    struct piece piece;  /* of the row that was given last */
};

/* `n_rows` is the batch, which the first dimension must be; 0: the model does not batch, all of it
 * is one row. `tensor` (an answer's: its bytes in one piece) must stay. Returns: ST_BAD_OUTPUT. */
enum status mip_rows_init(struct mip_rows *rows, const struct tensor *tensor, uint64_t n_rows,
                          struct error *err) __attribute__((warn_unused_result));
/* The next row as a tensor: a view that is valid until the next one is taken. At most as often as
 * there are rows. */
void mip_rows_next(struct mip_rows *rows, struct tensor *out);

#endif
