/* Writing the answer packet: outputs are split into rows, and each row becomes an item. */
#include "serve/frontend/mip/answer.h"

#include <assert.h>
#include <inttypes.h>

#include "codec/mip/item.h"
#include "core/base/checked.h"
#include "core/base/metric/metric.h"
#include "core/tensor/bytes.h"
#include "serve/frontend/mip/scores.h"

enum {
    PACKET_HEAD_BYTES = MIP_HEADER_BYTES + MIP_COUNTS_BYTES,
    FIRST_BYTES = 512,
    FIRST_VIEWS = 4,
};

/* ---- rows of an output ----------------------------------------------------------------------- */

static enum status error_not_batched(const struct tensor *tensor, uint64_t n_rows,
                                     struct error *err) {
    char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_OUTPUT,
                     "output %s: expected the batch of %" PRIu64 " as its first dimension, the "
                     "model gave shape %s",
                     quote_name(tensor->name, name), n_rows, shape_print(tensor->shape, shape));
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
        return error_not_batched(tensor, n_rows, err); /* cannot happen */
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

/* ---- the writer ------------------------------------------------------------------------------ */

static enum status answer_no_memory(const struct mip_answer_writer *writer, struct error *err) {
    return error_no_memory(err, "an answer of more than %zu bytes", writer->block.len);
}

enum status mip_answer_begin(struct mip_answer_writer *writer, struct arena *arena,
                             const struct mip_plan *plan, enum v2_non_finite non_finite,
                             struct error *err) {
    *writer = (struct mip_answer_writer){.arena = arena, .plan = plan, .non_finite = non_finite};
    buf_init(&writer->block, arena, FIRST_BYTES);
    if (!buf_reserve(&writer->block, PACKET_HEAD_BYTES)) {
        return answer_no_memory(writer, err);
    }
    buf_advance(&writer->block, PACKET_HEAD_BYTES); /* written by mip_answer_end */
    return ST_OK;
}

enum status mip_answer_begin_part(struct mip_answer_writer *part, struct arena *arena,
                                  const struct mip_plan *plan, enum v2_non_finite non_finite,
                                  struct error *err) {
    *part = (struct mip_answer_writer){.arena = arena, .plan = plan, .non_finite = non_finite};
    buf_init(&part->block, arena, FIRST_BYTES);
    return part->block.failed ? answer_no_memory(part, err) : ST_OK;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Writes the head of an item at `at`; its `n_bytes` are in the block or are a view. */
static enum status encode_item_head(struct mip_answer_writer *writer, size_t at,
                                    enum mip_item_type type, size_t n_bytes, struct error *err) {
    if (n_bytes > UINT32_MAX) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "an output of %zu bytes exceeds the size of a packet", n_bytes);
    }
    struct mip_item item = {(uint32_t)type, str_make(NULL, n_bytes)};
    mip_item_head_encode(&item, writer->block.data + at);
    return ST_OK;
}

static enum status add_view(struct mip_answer_writer *writer, struct str text, struct error *err) {
    if (writer->n_views == writer->cap_views) {
        size_t cap = writer->cap_views > 0 ? writer->cap_views * 2 : FIRST_VIEWS;
        struct mip_view *views = arena_realloc(
            writer->arena, writer->views, writer->cap_views * sizeof(*views), cap * sizeof(*views));
        if (!views) {
            return answer_no_memory(writer, err);
        }
        writer->views = views;
        writer->cap_views = cap;
    }
    if (!checked_add(writer->view_bytes, text.len, &writer->view_bytes)) {
        return answer_no_memory(writer, err);
    }
    writer->views[writer->n_views++] = (struct mip_view){writer->block.len, text};
    return ST_OK;
}

enum status mip_answer_add_part(struct mip_answer_writer *writer,
                                const struct mip_answer_writer *part, struct error *err) {
    enum status st = ST_OK;
    size_t at = 0;
    for (size_t i = 0; st == ST_OK && i < part->n_views; i++) {
        const struct mip_view *view = &part->views[i];
        st = add_view(writer, str_make(part->block.data + at, view->at - at), err);
        at = view->at;
        if (st == ST_OK) {
            st = add_view(writer, view->text, err);
        }
    }
    writer->views_outputs = writer->views_outputs || part->views_outputs;
    return st == ST_OK
               ? add_view(writer, str_make(part->block.data + at, part->block.len - at), err)
               : st;
}

static enum status add_text(struct mip_answer_writer *writer, size_t head, struct str text,
                            bool may_view, struct error *err) {
    enum status st = encode_item_head(writer, head, MIP_TEXT, text.len, err);
    if (st != ST_OK) {
        return st;
    }
    if (may_view && text.len >= MIP_VIEW_MIN_BYTES) {
        writer->views_outputs = true;
        return add_view(writer, text, err);
    }
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)text.len);
    buf_add_str(&writer->block, text);
    return writer->block.failed ? answer_no_memory(writer, err) : ST_OK;
}

static enum status add_json(struct mip_answer_writer *writer, size_t head,
                            const struct mip_output *output, const struct tensor *element,
                            struct arena *scratch, struct error *err) {
    bool scores = output->softmax || output->top_k > 0;
    enum status st =
        scores ? mip_scores_print(&writer->block, scratch, output, element, writer->non_finite, err)
               : mip_item_print_json(&writer->block, element, writer->non_finite, err);
    if (st != ST_OK) {
        return st;
    }
    if (writer->block.failed) {
        return answer_no_memory(writer, err);
    }
    return encode_item_head(writer, head, MIP_JSON, writer->block.len - head - MIP_ITEM_HEAD_BYTES,
                            err);
}

static bool is_text(const struct tensor *element) {
    uint64_t n;
    return element->datatype == DT_BYTES && shape_elements(element->shape, &n) && n == 1;
}

enum status mip_answer_add(struct mip_answer_writer *writer, size_t index,
                           const struct tensor *element, bool may_view, struct arena *scratch,
                           struct error *err) {
    size_t head = writer->block.len;
    if (!buf_reserve(&writer->block, MIP_ITEM_HEAD_BYTES)) {
        return answer_no_memory(writer, err);
    }
    buf_advance(&writer->block, MIP_ITEM_HEAD_BYTES);
    if (!is_text(element)) {
        return add_json(writer, head, &writer->plan->outputs[index], element, scratch, err);
    }
    struct mip_item item;
    enum status st = mip_item_of_tensor(scratch, element, writer->non_finite, &item, err);
    return st == ST_OK ? add_text(writer, head, item.data, may_view, err) : st;
}

enum status mip_answer_add_missing(struct mip_answer_writer *writer, struct error *err) {
    size_t head = writer->block.len;
    if (!buf_reserve(&writer->block, MIP_ITEM_HEAD_BYTES)) {
        return answer_no_memory(writer, err);
    }
    buf_advance(&writer->block, MIP_ITEM_HEAD_BYTES);
    buf_add_str(&writer->block, STR("null"));
    return writer->block.failed ? answer_no_memory(writer, err)
                                : encode_item_head(writer, head, MIP_JSON, 4, err);
}

/* ---- the packet ------------------------------------------------------------------------------ */

static enum status encode_packet_head(struct mip_answer_writer *writer,
                                      const struct mip_infer *request, struct error *err) {
    size_t n_bytes;
    if (!checked_add(writer->block.len - MIP_HEADER_BYTES, writer->view_bytes, &n_bytes) ||
        n_bytes > UINT32_MAX) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "the answer has %zu bytes, which exceeds the size of a packet",
                         writer->block.len);
    }
    struct mip_infer head = {.n_inputs = request->n_inputs,
                             .n_outputs = (uint8_t)writer->plan->spec->n_outputs,
                             .batch = request->batch};
    mip_infer_head_encode(&head, true, (uint32_t)n_bytes, writer->block.data);
    return ST_OK;
}

/* Appends a piece, unless it is empty. Returns: the new number of pieces. */
static size_t add_piece(struct piece *pieces, size_t n, const char *data, size_t n_bytes) {
    if (n_bytes > 0) {
        pieces[n++] = (struct piece){data, n_bytes};
    }
    return n;
}

enum status mip_answer_end(struct mip_answer_writer *writer, const struct mip_infer *request,
                           const struct piece **pieces, size_t *n_pieces, struct error *err) {
    enum status st = encode_packet_head(writer, request, err);
    struct piece *out = arena_calloc(writer->arena, 2 * writer->n_views + 1, sizeof(*out));
    if (st != ST_OK || !out) {
        return st != ST_OK ? st : answer_no_memory(writer, err);
    }
    size_t n = 0, at = 0;
    for (size_t i = 0; i < writer->n_views; i++) {
        const struct mip_view *view = &writer->views[i];
        n = add_piece(out, n, writer->block.data + at, view->at - at);
        n = add_piece(out, n, view->text.ptr, view->text.len);
        at = view->at;
    }
    *n_pieces = add_piece(out, n, writer->block.data + at, writer->block.len - at);
    *pieces = out;
    return ST_OK;
}
