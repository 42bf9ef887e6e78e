/* Filters and their weights, in double until the final rounding to fixed point, which makes resized
 * bytes equal on every machine. */
#include "serve/picture/weights.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/checked.h"

/* ---- filters --------------------------------------------------------------------------------- */

static double triangle(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* R. Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981), with a = -1/2. */
static double cubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) {
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    }
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x) {
    const double pi = 3.14159265358979323846;
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}

/* Lanczos-3: a sinc windowed by a three times wider one. */
static double lanczos(double x) {
    return fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
}

struct filter {
    double (*at)(double x);
    double reach; /* the filter is 0 beyond this distance */
};

static struct filter filter_of(enum picture_filter filter) {
    switch (filter) {
    case PICTURE_BILINEAR:
        return (struct filter){triangle, 1};
    case PICTURE_LANCZOS:
        return (struct filter){lanczos, 3};
    case PICTURE_AUTO: /* resolved by the caller */
    case PICTURE_NEAREST:
    case PICTURE_BICUBIC:
        break;
    }
    return (struct filter){cubic, 2};
}

/* ---- weights --------------------------------------------------------------------------------- */

static bool weights_alloc(struct weights *weights, uint32_t n_out, uint32_t stride) {
    size_t n_spans, n_values, n_all;
    *weights = (struct weights){.n_out = n_out, .stride = stride};
    if (!checked_mul(n_out, sizeof(*weights->spans), &n_spans) ||
        !checked_mul(n_out, stride, &n_all) ||
        !checked_mul(n_all, sizeof(*weights->values), &n_values)) {
        return false;
    }
    weights->spans = malloc(n_spans);
    weights->values = malloc(n_values);
    if (!weights->spans || !weights->values) {
        weights_fini(weights);
        return false;
    }
    return true;
}

void weights_fini(struct weights *weights) {
    free(weights->spans);
    free(weights->values);
    *weights = (struct weights){0};
}

/* Old samples per new sample. */
static double scale_of(const struct weights_axis *axis) {
    float length = axis->to - axis->from;
    return (double)length / (axis->n_all ? axis->n_all : axis->n_out);
}

/* Positions are summed step by step, as in Pillow: when a centre is between two samples, the
 * rounding error decides, and it must be Pillow's. */
static bool init_nearest(struct weights *weights, const struct weights_axis *axis) {
    double step = scale_of(axis);
    double at = (double)axis->from + step * 0.5;
    if (!weights_alloc(weights, axis->n_out, 1)) {
        return false;
    }
    for (uint32_t i = 0; i < axis->skip; i++) {
        at += step;
    }
    for (uint32_t i = 0; i < axis->n_out; i++) {
        uint32_t index = (uint32_t)at;
        weights->spans[i].first = index < axis->n_in ? index : axis->n_in - 1;
        weights->spans[i].n = 1;
        weights->values[i] = INT32_C(1) << WEIGHT_BITS;
        at += step;
    }
    return true;
}

/* The sample index of a position, clamped to 0 and n_in. */
static uint32_t boundary(double at, uint32_t n_in) {
    if (at < 0) {
        return 0;
    }
    return at < n_in ? (uint32_t)at : n_in;
}

static int32_t fixed(double weight) {
    double scaled = weight * (INT32_C(1) << WEIGHT_BITS);
    return (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

/* Computes the weights of the new sample with centre `center` on the old axis. `raw` is scratch
 * memory for them. */
static void set_weights(struct weights *weights, uint32_t i, double center, double widening,
                        const struct filter *filter, uint32_t n_in, double *raw) {
    double reach = filter->reach * widening, narrowing = 1 / widening, total = 0;
    uint32_t first = boundary(center - reach + 0.5, n_in);
    uint32_t end = boundary(center + reach + 0.5, n_in);
    int32_t *values = weights->values + (size_t)i * weights->stride;
    for (uint32_t k = 0; k < end - first; k++) {
        raw[k] = filter->at(((double)k + first - center + 0.5) * narrowing);
        total += raw[k];
    }
    for (uint32_t k = 0; k < end - first; k++) {
        values[k] = fixed(total != 0 ? raw[k] / total : raw[k]);
    }
    weights->spans[i] = (struct weights_span){first, end - first};
}

bool weights_init(struct weights *weights, const struct weights_axis *axis,
                  enum picture_filter kind) {
    if (kind == PICTURE_NEAREST) {
        return init_nearest(weights, axis);
    }
    struct filter filter = filter_of(kind);
    double scale = scale_of(axis);
    double widening = scale < 1 ? 1 : scale;
    uint32_t stride = (uint32_t)ceil(filter.reach * widening) * 2 + 1;
    double *raw = calloc(stride, sizeof(*raw));
    bool ok = raw && weights_alloc(weights, axis->n_out, stride);
    for (uint32_t i = 0; ok && i < axis->n_out; i++) {
        double center = (double)axis->from + ((double)axis->skip + i + 0.5) * scale;
        set_weights(weights, i, center, widening, &filter, axis->n_in, raw);
    }
    free(raw);
    return ok;
}
