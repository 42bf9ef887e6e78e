/* The weights with which old samples along one axis contribute to new ones. The arithmetic is that
 * of Pillow's resize, with which models are trained: a sample has width one and its centre at one
 * half, the filter is widened when shrinking, and weights beyond the edge are dropped with the
 * others rescaled to add up to one. */
#ifndef SLUICE_SERVE_PICTURE_WEIGHTS_H
#define SLUICE_SERVE_PICTURE_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "serve/picture/picture.h"

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

#endif
