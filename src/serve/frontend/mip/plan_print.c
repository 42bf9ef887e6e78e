/* A plan in words: `sluice serve --check`. */
#include <inttypes.h>

#include "serve/frontend/mip/plan.h"

static void print_numbers(const char *name, const double *values, size_t n, double usual,
                          struct buf *out) {
    bool same = true, all_usual = true;
    for (size_t i = 0; i < n; i++) {
        same = same && values[i] == values[0];
        all_usual = all_usual && values[i] == usual;
    }
    if (all_usual) {
        return;
    }
    buf_printf(out, ", %s", name);
    for (size_t i = 0; i < (same ? 1 : n); i++) {
        buf_printf(out, " %g", values[i]);
    }
}

static void print_picture(const struct picture_plan *plan, struct buf *out) {
    size_t channels = plan->color == PICTURE_GREY ? 1 : PICTURE_MAX_CHANNELS;
    buf_printf(out, "pictures become %" PRIu32 "x%" PRIu32 " %s (%s, filter %s", plan->width,
               plan->height, mip_color_name(plan->color), mip_fit_name(plan->fit),
               mip_filter_name(plan->filter));
    if (channels > 1) {
        buf_printf(out, ", %s", plan->layout == PICTURE_NCHW ? "nchw" : "nhwc");
    }
    print_numbers("scale", &plan->scale, 1, 1, out);
    print_numbers("mean", plan->mean, channels, 0, out);
    print_numbers("std", plan->std, channels, 1, out);
    buf_add_char(out, ')');
}

static void print_input(const struct mip_input *input, struct buf *out) {
    bool bytes = input->spec->datatype == DT_BYTES;
    buf_printf(out, "%.*s  %s; ", STR_ARG(input->spec->name), bytes ? "TEXT, JSON" : "JSON");
    switch (input->pictures) {
    case MIP_PICTURES_DECODED:
        print_picture(&input->picture, out);
        break;
    case MIP_PICTURES_AS_FILE:
        buf_printf(out, "pictures as the files they are");
        break;
    case MIP_PICTURES_REFUSED:
        buf_printf(out, "no pictures: %s", input->why_refused);
        break;
    }
}

static void print_output(const struct mip_output *output, struct buf *out) {
    buf_printf(out, "%.*s  ", STR_ARG(output->spec->name));
    if (output->top_k > 0) {
        buf_printf(out, "JSON, the %zu best%s by ", output->top_k,
                   output->softmax ? " after softmax" : "");
        if (output->labels.n > 0) {
            buf_printf(out, "%zu labels", output->labels.n);
        } else {
            buf_printf(out, "index");
        }
    } else if (output->softmax) {
        buf_printf(out, "JSON, after softmax");
    } else if (output->spec->datatype == DT_BYTES) {
        buf_printf(out, "TEXT where it is one element, else JSON");
    } else {
        buf_printf(out, "JSON");
    }
}

void mip_plan_print(const struct mip_plan *plan, struct buf *out) {
    for (size_t i = 0; i < plan->spec->n_inputs; i++) {
        buf_printf(out, "  %-10s ", i == 0 ? "inputs" : "");
        print_input(&plan->inputs[i], out);
        buf_add_char(out, '\n');
    }
    for (size_t i = 0; i < plan->spec->n_outputs; i++) {
        buf_printf(out, "  %-10s ", i == 0 ? "outputs" : "");
        print_output(&plan->outputs[i], out);
        buf_add_char(out, '\n');
    }
}
