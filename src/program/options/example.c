/* The example of a model's use. */
#include "program/options/example.h"

#include <string.h>

#include "core/base/utf8.h"

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

/* Is it a word of a shell between '…', and safe on a terminal? */
static bool can_be_quoted(struct str text) {
    for (size_t at = 0; at < text.len;) {
        size_t n = utf8_char_len(text.ptr + at, text.len - at);
        if (n == 0 || utf8_is_control(text.ptr + at, n) || text.ptr[at] == '\'') {
            return false;
        }
        at += n;
    }
    return true;
}

static bool is_word(struct str text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t n = 0;
    while (n < text.len && memchr(plain, text.ptr[n], sizeof(plain) - 1)) {
        n++;
    }
    return n == text.len && n > 0;
}

void example_command_print(struct buf *out, const char *url, const struct model_spec *model) {
    bool possible = can_be_quoted(model->name);
    for (size_t i = 0; i < model->n_inputs; i++) {
        possible = possible && can_be_quoted(model->inputs[i].name);
    }
    if (!possible) {
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
