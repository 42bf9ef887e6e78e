/* The example of a model's use. */
#include "program/options/example.h"

#include <string.h>

enum { MAX_ELEMENTS = 64 /* of all inputs, in a command */ };

static int64_t dim_of(const struct tensor_spec *spec, uint32_t i) {
    return spec->shape.dims[i] < 0 ? 1 : spec->shape.dims[i];
}

static bool is_small(const struct model_spec *model) {
    uint64_t total = 0;
    for (size_t i = 0; i < model->n_inputs; i++) {
        uint64_t n = 1;
        for (uint32_t k = 0; k < model->inputs[i].shape.rank && n <= MAX_ELEMENTS; k++) {
            n *= (uint64_t)dim_of(&model->inputs[i], k);
        }
        total += n;
        if (total > MAX_ELEMENTS) {
            return false;
        }
    }
    return true;
}

static void print_values(struct buf *out, const struct tensor_spec *spec, uint32_t depth) {
    if (depth == spec->shape.rank) {
        buf_add_str(out, spec->datatype == DT_BYTES  ? STR("\"hello\"")
                         : spec->datatype == DT_BOOL ? STR("false")
                                                     : STR("0"));
        return;
    }
    buf_add_char(out, '[');
    for (int64_t i = 0; i < dim_of(spec, depth); i++) {
        if (i > 0) {
            buf_add_char(out, ',');
        }
        print_values(out, spec, depth + 1);
    }
    buf_add_char(out, ']');
}

static bool has_quote(struct str text) {
    return text.len > 0 && memchr(text.ptr, '\'', text.len);
}

static bool is_word(struct str text) {
    return text.len > 0 &&
           strspn(text.ptr, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") >=
               text.len;
}

void example_command_print(struct buf *out, const char *url, const struct model_spec *model) {
    bool quoted = has_quote(model->name);
    for (size_t i = 0; i < model->n_inputs; i++) {
        quoted = quoted || has_quote(model->inputs[i].name);
    }
    if (quoted) {
        return;
    }
    const char *quote = is_word(model->name) ? "" : "'";
    bool small = is_small(model);
    buf_printf(out, "sluice %s %s %s%.*s%s", small ? "infer" : "bench", url, quote,
               STR_ARG(model->name), quote);
    for (size_t i = 0; small && i < model->n_inputs; i++) {
        if (!model->inputs[i].optional) {
            buf_printf(out, " --input '%.*s=", STR_ARG(model->inputs[i].name));
            print_values(out, &model->inputs[i], 0);
            buf_add_char(out, '\'');
        }
    }
}
