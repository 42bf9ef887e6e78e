/* Which samples along one axis bear on which samples of the resized axis, and how much. The
 * arithmetic is that of Pillow's resize, in whose terms models are trained: a sample is a unit wide
 * with its centre at one half, the filter is widened when shrinking, weights beyond the edge are
 * left out and the others scaled to add up to one. */
#ifndef SLUICE_SERVE_PICTURE_WEIGHTS_H
#define SLUICE_SERVE_PICTURE_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "serve/picture/picture.h"

enum { WEIGHT_BITS = 22 }; /* a weight of one is 1 << WEIGHT_BITS */

/* From where to where of the old axis the new one reaches. The ends are floats, as Pillow's: which
 * samples are in reach can depend on it. */
struct weights_axis {
    uint32_t n_in;  /* at most 2^24 */
    float from, to; /* 0 <= from < to <= n_in */
    uint32_t n_out;
};

/* The old samples `first` to `first + n - 1` make the new one. Both ends grow with it, or stay. */
struct weights_span {
    uint32_t first;
    uint32_t n; /* >= 1 */
};

struct weights {
    uint32_t n_out;
    uint32_t stride; /* weights set aside for each new sample: >= n of every span */
    struct weights_span *spans;
    /* n_out x stride. Those of a span add up to about one, their magnitudes to less than two, so
     * that the sum over bytes fits an int32_t. */
    int32_t *values;
};

/* `filter` is not AUTO. Returns: false when memory is out; nothing is then held. Thread: any. */
bool weights_init(struct weights *weights, const struct weights_axis *axis,
                  enum picture_filter filter) __attribute__((warn_unused_result));
void weights_fini(struct weights *weights);

static inline const int32_t *weights_of(const struct weights *weights, uint32_t i) {
    return weights->values + (size_t)i * weights->stride;
}

#endif
