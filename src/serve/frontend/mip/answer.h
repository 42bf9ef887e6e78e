/* The answer to a packet, built element by element: each output becomes an item. Item heads and
 * JSON are in one block; long texts are views of the backend's memory. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_ANSWER_H
#define SLUICE_SERVE_FRONTEND_MIP_ANSWER_H

#include <stdint.h>

#include "codec/kserve/json_elements_print.h"
#include "codec/mip/packet.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "serve/frontend/mip/plan.h"

/* Texts of at least this size are not copied: below it, an iovec of its own costs more than the
 * copy. */
enum { MIP_VIEW_MIN_BYTES = 16384 };

/* A text outside the block: it follows the block's first `at` bytes. */
struct mip_view {
    size_t at;
    struct str text;
};

struct mip_answer_writer {
    struct arena *arena;
    const struct mip_plan *plan;
    enum v2_non_finite non_finite; /* in items that are JSON */
    struct buf block;
    struct mip_view *views;
    size_t n_views, cap_views;
    size_t view_bytes;
    bool views_outputs; /* some views are of the backend's memory */
};

/* Starts an answer in `arena`. Returns: ST_NO_MEMORY. */
enum status mip_answer_begin(struct mip_answer_writer *writer, struct arena *arena,
                             const struct mip_plan *plan, enum v2_non_finite non_finite,
                             struct error *err) SLUICE_MUST_USE;
/* Appends the item for output `index` of one element. `may_view`: the element's bytes stay until
 * the answer is sent, so that they need no copy. `scratch` holds temporary memory. Returns:
 * ST_BAD_OUTPUT, ST_NO_MEMORY, ST_BODY_TOO_LARGE when the size exceeds a packet's limit. */
enum status mip_answer_add(struct mip_answer_writer *writer, size_t index,
                           const struct tensor *element, bool may_view, struct arena *scratch,
                           struct error *err) SLUICE_MUST_USE;
/* Appends the item of an output that the model has left out: JSON, null. Returns: ST_NO_MEMORY. */
enum status mip_answer_add_missing(struct mip_answer_writer *writer,
                                   struct error *err) SLUICE_MUST_USE;
/* Starts a part of an answer, which is written apart from it, in `arena`, which lives as long as
 * the answer. Returns: ST_NO_MEMORY. Thread: any. */
enum status mip_answer_begin_part(struct mip_answer_writer *part, struct arena *arena,
                                  const struct mip_plan *plan, enum v2_non_finite non_finite,
                                  struct error *err) SLUICE_MUST_USE;
/* Appends the items of a part. Returns: ST_NO_MEMORY. */
enum status mip_answer_add_part(struct mip_answer_writer *writer,
                                const struct mip_answer_writer *part,
                                struct error *err) SLUICE_MUST_USE;
/* Finishes the answer; `request` has the numbers of elements and inputs. Owns: the pieces of the
 * packet are in the arena. Returns: ST_NO_MEMORY, ST_BODY_TOO_LARGE. */
enum status mip_answer_end(struct mip_answer_writer *writer, const struct mip_infer *request,
                           const struct piece **pieces, size_t *n_pieces,
                           struct error *err) SLUICE_MUST_USE;

/* Iterates over an output of a call, row by row: one row for each element of the batch. */
struct mip_rows {
    const struct tensor *tensor;
    struct shape shape;  /* of one row */
    uint64_t n_elements; /* in one row */
    size_t row_bytes;    /* not for BYTES, whose rows differ in size */
    struct str rest;     /* bytes after the current row */
    struct piece piece;  /* of the current row */
};

/* `n_rows`: the batch size, which the first dimension must have; 0 for a model without a batch
 * dimension, whose output is one row. `tensor` (of a response: in one piece) must outlive the
 * iteration. Returns: ST_BAD_OUTPUT. */
enum status mip_rows_init(struct mip_rows *rows, const struct tensor *tensor, uint64_t n_rows,
                          struct error *err) SLUICE_MUST_USE;
/* Sets *out to the next row, a view that is valid until the next call. Call it at most n_rows
 * times. */
void mip_rows_next(struct mip_rows *rows, struct tensor *out);

#endif
