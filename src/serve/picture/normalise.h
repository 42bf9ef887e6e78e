/* Converts rows of 8-bit RGB to tensor elements. The element for each of the 256 byte values of a
 * channel is computed once, in double; a pixel is then a table lookup, for every datatype. */
#ifndef SLUICE_SERVE_PICTURE_NORMALISE_H
#define SLUICE_SERVE_PICTURE_NORMALISE_H

#include <stdint.h>

#include "serve/picture/picture.h"

struct normalise {
    const struct picture_plan *plan;
    uint32_t n_channels;
    size_t element_bytes;
    size_t channel_step; /* distance in elements between channels of a pixel */
    size_t pixel_step;   /* distance in elements between horizontal neighbours */
    /* The elements' bits, in the low bytes. */
    uint64_t table[PICTURE_MAX_CHANNELS][256];
};

/* `plan` was accepted by picture_plan_bytes; it is borrowed. */
void normalise_init(struct normalise *normalise, const struct picture_plan *plan);
/* Fills `out` with plan->pad; picture_plan_bytes bytes, aligned to the datatype. */
void normalise_pad(const struct normalise *normalise, void *out);
/* Writes `n` pixels at column `x` of row `y`. */
void normalise_row(const struct normalise *normalise, void *out, uint32_t x, uint32_t y, uint32_t n,
                   const uint8_t *rgb);

#endif
