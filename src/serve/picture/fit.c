/* Geometry of stretch, crop and pad. */
#include "serve/picture/fit.h"

#include <math.h>

static struct weights_axis axis_whole(uint32_t n_in, uint32_t n_out) {
    return (struct weights_axis){.n_in = n_in, .from = 0, .to = (float)n_in, .n_out = n_out};
}

/* A window of `length` around the centre, clamped to the picture after rounding and never empty: in
 * a picture of 1 x 65535, floats cannot represent both ends of a narrow window. */
static struct weights_axis axis_centered(uint32_t n_in, double length, uint32_t n_out) {
    double left = (n_in - length) * 0.5;
    float most = (float)n_in;
    float from = fmaxf(0, (float)left);
    float to = fminf(most, (float)(left + length));
    if (from >= to) {
        to = nextafterf(from, most);
    }
    return (struct weights_axis){.n_in = n_in, .from = from, .to = to, .n_out = n_out};
}

static struct fit crop(uint32_t width, uint32_t height, uint32_t to_width, uint32_t to_height) {
    double ratio = (double)width / height, to_ratio = (double)to_width / to_height;
    double crop_width = width, crop_height = height;
    if (ratio >= to_ratio) {
        crop_width = to_ratio * height;
    } else {
        crop_height = width / to_ratio;
    }
    return (struct fit){.x = axis_centered(width, crop_width, to_width),
                        .y = axis_centered(height, crop_height, to_height)};
}

/* The middle of a side that becomes `n_all` long; halves round to even, as in Python. */
static struct weights_axis axis_middle(uint32_t n_in, uint32_t n_all, uint32_t n_out) {
    return (struct weights_axis){.n_in = n_in,
                                 .from = 0,
                                 .to = (float)n_in,
                                 .n_out = n_out,
                                 .n_all = n_all,
                                 .skip = (uint32_t)rint((n_all - n_out) * 0.5)};
}

/* The longer side is rounded down. */
static struct fit resize_and_crop(uint32_t width, uint32_t height,
                                  const struct picture_plan *plan) {
    uint64_t shorter = width < height ? width : height;
    uint32_t all_width = (uint32_t)((uint64_t)plan->short_side * width / shorter);
    uint32_t all_height = (uint32_t)((uint64_t)plan->short_side * height / shorter);
    return (struct fit){.x = axis_middle(width, all_width, plan->width),
                        .y = axis_middle(height, all_height, plan->height)};
}

/* The other side of the resized picture: halves round to even, at least 1. */
static uint32_t resized_side(double exact, uint32_t most) {
    double rounded = rint(exact);
    if (rounded < 1) {
        return 1;
    }
    return rounded < most ? (uint32_t)rounded : most;
}

static struct fit pad(uint32_t width, uint32_t height, uint32_t to_width, uint32_t to_height) {
    double ratio = (double)width / height, to_ratio = (double)to_width / to_height;
    uint32_t inner_width = to_width, inner_height = to_height;
    if (ratio > to_ratio) {
        inner_height = resized_side((double)height / width * to_width, to_height);
    } else if (ratio < to_ratio) {
        inner_width = resized_side(ratio * to_height, to_width);
    }
    return (struct fit){.x = axis_whole(width, inner_width),
                        .y = axis_whole(height, inner_height),
                        .left = (uint32_t)rint((to_width - inner_width) * 0.5),
                        .top = (uint32_t)rint((to_height - inner_height) * 0.5)};
}

struct fit fit_compute(const struct picture_plan *plan, uint32_t width, uint32_t height) {
    switch (plan->fit) {
    case PICTURE_CROP:
        return plan->short_side ? resize_and_crop(width, height, plan)
                                : crop(width, height, plan->width, plan->height);
    case PICTURE_PAD:
        return pad(width, height, plan->width, plan->height);
    case PICTURE_STRETCH:
        break;
    }
    return (struct fit){.x = axis_whole(width, plan->width), .y = axis_whole(height, plan->height)};
}

static bool axis_is_identity(const struct weights_axis *axis) {
    return (axis->n_all ? axis->n_all : axis->n_out) == axis->n_in &&
           axis->to - axis->from >= (float)axis->n_in;
}

bool fit_is_identity(const struct fit *fit) {
    return axis_is_identity(&fit->x) && axis_is_identity(&fit->y);
}
