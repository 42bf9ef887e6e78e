/* In the order in which they are used: weights, the window, rows. */
#include "serve/picture/resize.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/checked.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* Filters and their weights, in double until the final rounding to fixed point, which makes resized
 * bytes equal on every machine. */

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

/* ---- the window ------------------------------------------------------------------------------ */

/* Geometry of stretch, crop and pad. */

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

/* ---- rows ------------------------------------------------------------------------------------ */

/* Two passes in fixed point with rounding to bytes in between, in the order of Pillow's resize,
 * which gives the same bytes. The sums of new rows are in a ring with as many slots as one old row
 * contributes to. */

enum { MAX_CHANNELS = 4, HALF = 1 << (WEIGHT_BITS - 1) };

struct resample {
    struct resample_plan plan;
    struct weights x, y;
    uint32_t n_rows; /* old rows received */
    uint32_t n_done; /* new rows delivered */
    uint32_t n_open; /* new rows started, delivered ones included */
    uint32_t n_slots;
    size_t n_samples;    /* per new row */
    int32_t *sums;       /* n_slots rows */
    uint8_t *scaled_row; /* an old row at the new width, and a new row while it is delivered */
};

static uint8_t byte_of(int32_t sum) {
    int32_t value = sum >> WEIGHT_BITS; /* arithmetic shift with gcc and clang */
    if (value < 0) {
        return 0;
    }
    return (uint8_t)(value > 255 ? 255 : value);
}

static uint32_t span_end(struct weights_span span) {
    return span.first + span.n;
}

/* The maximum number of new rows that one old row contributes to. */
static uint32_t count_slots(const struct weights *y) {
    uint32_t most = 1, open = 0;
    for (uint32_t done = 0; done < y->n_out; done++) {
        while (open < y->n_out && y->spans[open].first < span_end(y->spans[done])) {
            open++;
        }
        most = open - done > most ? open - done : most;
    }
    return most;
}

static bool resample_alloc(struct resample *resample) {
    size_t n_samples, n_sums, n_bytes;
    if (!weights_init(&resample->x, &resample->plan.x, resample->plan.filter) ||
        !weights_init(&resample->y, &resample->plan.y, resample->plan.filter)) {
        return false;
    }
    resample->n_slots = count_slots(&resample->y);
    if (!checked_mul(resample->x.n_out, resample->plan.n_channels, &n_samples) ||
        !checked_mul(n_samples, resample->n_slots, &n_sums) ||
        !checked_mul(n_sums, sizeof(*resample->sums), &n_bytes)) {
        return false;
    }
    resample->n_samples = n_samples;
    resample->sums = malloc(n_bytes);
    resample->scaled_row = malloc(n_samples);
    return resample->sums && resample->scaled_row;
}

enum status resample_new(const struct resample_plan *plan, struct resample **out,
                         struct error *err) {
    struct resample *resample = calloc(1, sizeof(*resample));
    assert(plan->n_channels == 3 || plan->n_channels == MAX_CHANNELS);
    if (resample) {
        resample->plan = *plan;
    }
    if (!resample || !resample_alloc(resample)) {
        resample_free(resample);
        return error_no_memory(
            err, "resizing a picture of %" PRIu32 " x %" PRIu32 " pixels to %" PRIu32 " x %" PRIu32,
            plan->x.n_in, plan->y.n_in, plan->x.n_out, plan->y.n_out);
    }
    *out = resample;
    return ST_OK;
}

void resample_free(struct resample *resample) {
    if (!resample) {
        return;
    }
    weights_fini(&resample->x);
    weights_fini(&resample->y);
    free(resample->sums);
    free(resample->scaled_row);
    free(resample);
}

/* `n_channels` is a constant at each call site, so the compiler unrolls the loops over it. */
static inline __attribute__((always_inline)) void resize_row_to_width(struct resample *resample,
                                                                      const uint8_t *samples,
                                                                      const uint32_t n_channels) {
    const struct weights *x = &resample->x;
    uint8_t *out = resample->scaled_row;
    for (uint32_t i = 0; i < x->n_out; i++) {
        const int32_t *weights = weights_of(x, i);
        const uint8_t *from = samples + (size_t)x->spans[i].first * n_channels;
        uint32_t n = x->spans[i].n;
        int32_t sums[MAX_CHANNELS] = {HALF, HALF, HALF, HALF};
        for (uint32_t k = 0; k < n; k++) {
            for (uint32_t c = 0; c < n_channels; c++) {
                sums[c] += from[c] * weights[k];
            }
            from += n_channels;
        }
        for (uint32_t c = 0; c < n_channels; c++) {
            out[c] = byte_of(sums[c]);
        }
        out += n_channels;
    }
}

static int32_t *sums_of(struct resample *resample, uint32_t y) {
    return resample->sums + (y % resample->n_slots) * resample->n_samples;
}

static void open_rows(struct resample *resample) {
    const struct weights *y = &resample->y;
    while (resample->n_open < y->n_out && y->spans[resample->n_open].first <= resample->n_rows) {
        assert(resample->n_open - resample->n_done < resample->n_slots);
        int32_t *sums = sums_of(resample, resample->n_open);
        for (size_t i = 0; i < resample->n_samples; i++) {
            sums[i] = HALF;
        }
        resample->n_open++;
    }
}

static void add_row(struct resample *resample) {
    const uint8_t *scaled_row = resample->scaled_row;
    size_t n = resample->n_samples;
    for (uint32_t y = resample->n_done; y < resample->n_open; y++) {
        int32_t weight = weights_of(&resample->y, y)[resample->n_rows - resample->y.spans[y].first];
        int32_t *restrict sums = sums_of(resample, y);
        for (size_t i = 0; i < n; i++) {
            sums[i] += scaled_row[i] * weight;
        }
    }
}

static void emit_rows(struct resample *resample) {
    while (resample->n_done < resample->n_open &&
           span_end(resample->y.spans[resample->n_done]) == resample->n_rows) {
        const int32_t *sums = sums_of(resample, resample->n_done);
        for (size_t i = 0; i < resample->n_samples; i++) {
            resample->scaled_row[i] = byte_of(sums[i]);
        }
        resample->plan.row(resample->plan.user, resample->n_done, resample->scaled_row);
        resample->n_done++;
    }
}

void resample_row(struct resample *resample, const uint8_t *samples) {
    assert(resample->n_rows < resample->plan.y.n_in);
    open_rows(resample);
    if (resample->n_done < resample->n_open) {
        if (resample->plan.n_channels == 3) {
            resize_row_to_width(resample, samples, 3);
        } else {
            resize_row_to_width(resample, samples, MAX_CHANNELS);
        }
        add_row(resample);
    }
    resample->n_rows++;
    emit_rows(resample);
}
