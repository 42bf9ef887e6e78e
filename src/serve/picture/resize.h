/* Resizing: which window of a picture gets what size (fit), the weights with which old samples
 * contribute to new ones, and the resizing of rows. */
#ifndef SLUICE_SERVE_PICTURE_RESIZE_H
#define SLUICE_SERVE_PICTURE_RESIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "serve/picture/picture.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* The weights with which old samples along one axis contribute to new ones. The arithmetic is that
 * of Pillow's resize, with which models are trained: a sample has width one and its centre at one
 * half, the filter is widened when shrinking, and weights beyond the edge are dropped with the
 * others rescaled to add up to one. */

enum { WEIGHT_BITS = 22 }; /* 1 << WEIGHT_BITS is a weight of one */

/* The window of the old axis that the new one covers. Its ends are floats, as in Pillow, because
 * rounding decides which samples are within reach. */
struct weights_axis {
    uint32_t n_in;  /* at most 2^24 */
    float from, to; /* 0 <= from < to <= n_in */
    uint32_t n_out;
    /* The window has n_all new samples, of which those from `skip` on are wanted; 0: n_out. */
    uint32_t n_all, skip;
};

/* A new sample is made of the old samples `first` to `first + n - 1`. `first` and the end never
 * decrease. */
struct weights_span {
    uint32_t first;
    uint32_t n; /* >= 1 */
};

struct weights {
    uint32_t n_out;
    uint32_t stride; /* weights allocated per new sample: >= n of every span */
    struct weights_span *spans;
    /* n_out x stride. The weights of a span add up to about one, their magnitudes to less than two,
     * so a weighted sum of bytes fits an int32_t. */
    int32_t *values;
};

/* `filter` is not AUTO. Returns: false when out of memory, with nothing allocated. Thread: any. */
bool weights_init(struct weights *weights, const struct weights_axis *axis,
                  enum picture_filter filter) SLUICE_MUST_USE;
void weights_fini(struct weights *weights);

static inline const int32_t *weights_of(const struct weights *weights, uint32_t i) {
    return weights->values + (size_t)i * weights->stride;
}

/* ---- the window ------------------------------------------------------------------------------ */

/* Computes which window of the picture is resized, to what size, and its position in the result.
 * Crop and pad round as Pillow's ImageOps.fit and ImageOps.pad do; a crop with a short side as
 * torchvision's Resize and CenterCrop. */

struct fit {
    struct weights_axis x, y;
    uint32_t left, top; /* position of the resized window in the result; 0 unless padded */
};

/* All sizes >= 1. Thread: any. */
struct fit fit_compute(const struct picture_plan *plan, uint32_t width, uint32_t height);

/* Returns: whether no resizing is needed. */
bool fit_is_identity(const struct fit *fit);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Resizes a picture of 8-bit samples row by row, top to bottom: each old row is resized to the new
 * width and added to the new rows that it contributes to. Memory is a few rows of the new width,
 * independent of the old height. */

struct resample;

struct resample_plan {
    struct weights_axis x, y;
    enum picture_filter filter; /* not AUTO */
    uint32_t n_channels;        /* samples per pixel: 3 or 4 */
    /* Called for each new row from the top: x.n_out pixels, borrowed for the call. */
    void (*row)(void *user, uint32_t y, const uint8_t *samples);
    void *user;
};

/* Returns: ST_NO_MEMORY. */
enum status resample_new(const struct resample_plan *plan, struct resample **out,
                         struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void resample_free(struct resample *resample);

/* Adds the next old row, x.n_in pixels; called y.n_in times. The last new row is delivered during
 * the last call or earlier. Thread: one at a time. */
void resample_row(struct resample *resample, const uint8_t *samples);

#endif
