/* The classification extension: replaces outputs by their top-k classes. */
#include "serve/frontend/classify.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "core/base/buf.h"
#include "core/tensor/bytes.h"
#include "serve/frontend/top_k.h"

enum { MAX_VALUES = 1000000 };

/* ---- what can be ranked ---------------------------------------------------------------------- */

static bool can_be_ranked(enum datatype datatype) {
    return datatype != DT_BOOL && datatype != DT_FP16 && datatype != DT_BF16 &&
           datatype != DT_BYTES;
}

enum status classify_check(const struct infer_request *request, const struct model_spec *model,
                           struct error *err) {
    for (size_t i = 0; i < request->n_wanted; i++) {
        const struct tensor_spec *spec = &model->outputs[request->wanted[i].spec];
        if (request->wanted[i].n_classes > 0 && !can_be_ranked(spec->datatype)) {
            char name[QUOTED_NAME_BYTES];
            return error_set(err, ST_BAD_DATATYPE,
                             "output %s: classification is for integers, FP32 and FP64, not for %s",
                             quote_name(spec->name, name), datatype_name(spec->datatype));
        }
    }
    return ST_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Floats with six decimals, as the reference server prints them. */
static void print_value(struct buf *out, enum datatype datatype, const char *data, size_t i) {
    double value = top_k_value(datatype, data, i);
    if (datatype == DT_UINT64) {
        uint64_t whole;
        memcpy(&whole, data + i * sizeof(whole), sizeof(whole));
        buf_add_u64(out, whole);
    } else if (datatype == DT_INT64) {
        int64_t whole;
        memcpy(&whole, data + i * sizeof(whole), sizeof(whole));
        buf_add_i64(out, whole);
    } else if (datatype == DT_FP32 || datatype == DT_FP64) {
        buf_printf(out, "%f",
                   isnan(value) ? fabs(value) : value); /* prints a NaN without its sign */
    } else {
        buf_add_i64(out, (int64_t)value);
    }
}

static void print_class(struct buf *out, enum datatype datatype, const char *data, size_t index,
                        const struct labels *labels) {
    size_t start = out->len;
    buf_add(out, "\0\0\0\0", BYTES_LENGTH_BYTES);
    print_value(out, datatype, data, index);
    buf_add_char(out, ':');
    buf_add_u64(out, index);
    if (index < labels->n && labels->items[index].len > 0) {
        buf_add_char(out, ':');
        buf_add_str(out, labels->items[index]);
    }
    if (!out->failed) {
        bytes_encode_length(out->data + start, (uint32_t)(out->len - start - BYTES_LENGTH_BYTES));
    }
}

/* ---- an output ------------------------------------------------------------------------------- */

/* The layout of an output: `batch` elements with `n` values each, of which the `top` greatest are
 * listed. */
struct class_layout {
    uint64_t batch;
    size_t n, top;
};

static enum status compute_class_layout(const struct tensor *output, bool batches,
                                        uint64_t n_classes, struct class_layout *out,
                                        struct error *err) {
    size_t first = batches && output->shape.rank > 0 ? 1 : 0;
    struct shape item = {output->shape.dims + first, output->shape.rank - first};
    uint64_t n;
    if (!shape_elements(item, &n) || n > MAX_VALUES) {
        char name[QUOTED_NAME_BYTES], text[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BAD_SHAPE,
                         "output %s: classification is for at most %d values, its shape is %s",
                         quote_name(output->name, name), MAX_VALUES,
                         shape_print(output->shape, text));
    }
    out->batch = first > 0 ? (uint64_t)output->shape.dims[0] : 1;
    out->n = (size_t)n;
    out->top = n_classes < n ? (size_t)n_classes : (size_t)n;
    return ST_OK;
}

static enum status classify_output(struct arena *arena, const struct tensor *output,
                                   struct class_layout layout, const struct labels *labels,
                                   struct buf *text) {
    struct top_k_item *top = arena_calloc(arena, layout.top, sizeof(*top));
    const char *data = output->n_pieces > 0 ? output->pieces[0].data : NULL;
    size_t item_bytes = layout.n * datatype_size(output->datatype);
    if (!top) {
        return ST_NO_MEMORY;
    }
    assert(output->n_pieces <= 1); /* backends return outputs in one piece */
    for (uint64_t row = 0; layout.top > 0 && row < layout.batch; row++) {
        assert(data);
        top_k_find(output->datatype, data, layout.n, layout.top, top);
        for (size_t i = 0; i < layout.top; i++) {
            print_class(text, output->datatype, data, top[i].index, labels);
        }
        data += item_bytes;
    }
    return text->failed ? ST_NO_MEMORY : ST_OK;
}

static enum status replace_by_classes(struct arena *arena, bool batches,
                                      const struct labels *labels, uint64_t n_classes,
                                      struct tensor *output, struct error *err) {
    struct class_layout layout = {0};
    struct buf text;
    enum status st = compute_class_layout(output, batches, n_classes, &layout, err);
    if (st != ST_OK) {
        return st;
    }
    int64_t *dims = arena_calloc(arena, 2, sizeof(*dims));
    struct piece *piece = arena_calloc(arena, 1, sizeof(*piece));
    buf_init(&text, arena, 0);
    if (!dims || !piece || classify_output(arena, output, layout, labels, &text) != ST_OK) {
        return error_no_memory(err, "the best %zu values", layout.top);
    }
    dims[0] = batches ? (int64_t)layout.batch : (int64_t)layout.top;
    dims[1] = (int64_t)layout.top;
    *piece = (struct piece){text.data, text.len};
    output->datatype = DT_BYTES;
    output->shape = (struct shape){dims, batches ? 2 : 1};
    output->pieces = piece;
    output->n_pieces = text.len > 0 ? 1 : 0;
    output->n_bytes = text.len;
    return ST_OK;
}

enum status classify_outputs(struct arena *arena, const struct infer_request *request,
                             const struct model_spec *model, const struct labels *labels,
                             struct infer_response *response, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && request->n_wanted > 0 && i < response->n_outputs; i++) {
        const struct infer_requested_output *wanted =
            &request->wanted[infer_response_place(response, i)];
        if (wanted->n_classes > 0) {
            st = replace_by_classes(arena, model->max_batch_size > 0, &labels[wanted->spec],
                                    wanted->n_classes, &response->outputs[i], err);
        }
    }
    return st;
}
