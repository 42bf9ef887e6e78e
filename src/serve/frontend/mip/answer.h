/* The answer of a packet being written: element by element its outputs become items. What is
 * written lies in one block, heads and JSON one behind the other; only a long text is left where
 * the backend has it. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_ANSWER_H
#define SLUICE_SERVE_FRONTEND_MIP_ANSWER_H

#include <stdint.h>

#include "codec/mip/packet.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "serve/frontend/mip/plan.h"

/* From so many bytes on a text is not copied; below that the system call pays more for a piece of
 * its own than the copy costs. */
enum { MIP_VIEW_MIN_BYTES = 16384 };

/* A text that is not in the block: it belongs behind the block's first `at` bytes. */
struct mip_view {
    size_t at;
    struct str text;
};

struct mip_answer_writer {
    struct arena *arena;
    const struct mip_plan *plan;
    struct buf block;
    struct mip_view *views;
    size_t n_views, cap_views;
    size_t view_bytes;
};

/* `arena` holds the answer. Returns: ST_NO_MEMORY. */
enum status mip_answer_begin(struct mip_answer_writer *writer, struct arena *arena,
                             const struct mip_plan *plan, struct error *err)
    __attribute__((warn_unused_result));
/* Appends the item that output `index` of one element becomes. `may_view`: the element's bytes stay
 * until the answer is sent. `scratch` holds what is needed meanwhile. Returns: ST_BAD_OUTPUT,
 * ST_NO_MEMORY, ST_BODY_TOO_LARGE when a packet can't say the size. */
enum status mip_answer_add(struct mip_answer_writer *writer, size_t index,
                           const struct tensor *element, bool may_view, struct arena *scratch,
                           struct error *err) __attribute__((warn_unused_result));
/* All items are there: `request` says of how many elements and inputs. The pieces of the packet lie
 * in the arena. Returns: ST_NO_MEMORY, ST_BODY_TOO_LARGE. */
enum status mip_answer_end(struct mip_answer_writer *writer, const struct mip_infer *request,
                           const struct piece **pieces, size_t *n_pieces, struct error *err)
    __attribute__((warn_unused_result));

/* An output of a call, row by row: each element of the batch gets what is its own. */
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
