/* Softmax and the top-k values of an element. */
#include "serve/frontend/mip/scores.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "codec/mip/item.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"
#include "serve/frontend/top_k.h"

/* The values of one element, and the sums of its softmax. */
struct scores {
    const struct mip_output *output;
    const struct tensor *element;
    enum v2_non_finite non_finite;
    const char *data;
    size_t n;
    double highest; /* softmax(x) is e^(x - highest) / sum */
    double sum;
};

/* ---- values ---------------------------------------------------------------------------------- */

/* The plan rejects scores of BYTES and BOOL. */
static double value_at(const struct scores *scores, size_t i) {
    return top_k_value(scores->element->datatype, scores->data, i);
}

static double softmax_of(const struct scores *scores, double value) {
    return exp(value - scores->highest) / scores->sum;
}

static enum status check_numbers(const struct scores *scores, struct error *err) {
    for (size_t i = 0; i < scores->n; i++) {
        if (isnan(value_at(scores, i))) {
            char name[QUOTED_NAME_BYTES];
            return error_set(err, ST_BAD_OUTPUT,
                             "output %s: value %zu of the element is NaN, which is not a score",
                             quote_name(scores->element->name, name), i);
        }
    }
    return ST_OK;
}

static enum status prepare_softmax(struct scores *scores, struct error *err) {
    scores->highest = -INFINITY;
    for (size_t i = 0; i < scores->n; i++) {
        scores->highest = fmax(scores->highest, value_at(scores, i));
    }
    if (scores->n > 0 && isinf(scores->highest)) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_BAD_OUTPUT, "output %s: %s, which has no softmax",
                         quote_name(scores->element->name, name),
                         scores->highest > 0 ? "a value is infinite" : "all are -infinite");
    }
    for (size_t i = 0; i < scores->n; i++) {
        scores->sum += exp(value_at(scores, i) - scores->highest);
    }
    return ST_OK;
}

/* ---- top-k -------------------------------------------------------------------------------- */

/* The value as JSON: as the model returned it, or after softmax. */
static enum status print_value(struct buf *out, const struct scores *scores,
                               const struct top_k_item *top, struct error *err) {
    size_t size = datatype_size(scores->element->datatype);
    struct piece piece = {scores->data + top->index * size, size};
    struct tensor one = {.name = scores->element->name,
                         .datatype = scores->element->datatype,
                         .pieces = &piece,
                         .n_pieces = 1,
                         .n_bytes = size};
    double probability;
    if (scores->output->softmax) {
        probability = softmax_of(scores, value_at(scores, top->index));
        one.datatype = DT_FP64;
        one.n_bytes = sizeof(probability);
        piece = (struct piece){&probability, sizeof(probability)};
    }
    return mip_item_print_json(out, &one, scores->non_finite, err);
}

static enum status print_key(struct json_writer *json, const struct scores *scores, size_t index,
                             struct error *err) {
    const struct labels *labels = &scores->output->labels;
    if (labels->n == 0) {
        char digits[20];
        json_write_key_str(json, str_make(digits, num_print_u64(digits, index)));
        return ST_OK;
    }
    if (index >= labels->n) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_BAD_OUTPUT,
                         "output %s: value %zu of the element has no label, there are %zu",
                         quote_name(scores->element->name, name), index, labels->n);
    }
    json_write_key_str(json, labels->items[index]);
    return ST_OK;
}

static enum status print_top_k(struct buf *out, struct arena *scratch, const struct scores *scores,
                               struct error *err) {
    size_t max = scores->output->top_k < scores->n ? scores->output->top_k : scores->n;
    struct top_k_item *top = arena_calloc(scratch, max, sizeof(*top));
    if (!top) {
        return error_no_memory(err, "the %zu best values", max);
    }
    /* Ranks the model's own values: softmax keeps their order, but may make small ones equal. */
    top_k_find(scores->element->datatype, scores->data, scores->n, max, top);
    enum status st = ST_OK;
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    for (size_t i = 0; i < max && st == ST_OK; i++) {
        st = print_key(&json, scores, top[i].index, err);
        if (st == ST_OK) {
            st = print_value(json_write_begin(&json, JSON_ELEMENT), scores, &top[i], err);
        }
    }
    json_write_close(&json, '}');
    return st;
}

/* ---- all values ------------------------------------------------------------------------------ */

static enum status print_softmax(struct buf *out, struct arena *scratch,
                                 const struct scores *scores, struct error *err) {
    double *values = arena_calloc(scratch, scores->n, sizeof(*values));
    if (!values) {
        return error_no_memory(err, "softmax");
    }
    for (size_t i = 0; i < scores->n; i++) {
        values[i] = softmax_of(scores, value_at(scores, i));
    }
    struct piece piece = {values, scores->n * sizeof(*values)};
    struct tensor all = {.name = scores->element->name,
                         .datatype = DT_FP64,
                         .shape = scores->element->shape,
                         .pieces = &piece,
                         .n_pieces = 1,
                         .n_bytes = piece.n_bytes};
    return mip_item_print_json(out, &all, scores->non_finite, err);
}

enum status mip_scores_print(struct buf *out, struct arena *scratch,
                             const struct mip_output *output, const struct tensor *element,
                             enum v2_non_finite non_finite, struct error *err) {
    assert(element->n_pieces <= 1);
    struct scores scores = {.output = output,
                            .non_finite = non_finite,
                            .element = element,
                            .data = element->n_pieces > 0 ? element->pieces[0].data : NULL,
                            .n = element->n_bytes / datatype_size(element->datatype)};
    enum status st = check_numbers(&scores, err);
    if (st == ST_OK && output->softmax) {
        st = prepare_softmax(&scores, err);
    }
    if (st != ST_OK) {
        return st;
    }
    return output->top_k > 0 ? print_top_k(out, scratch, &scores, err)
                             : print_softmax(out, scratch, &scores, err);
}
