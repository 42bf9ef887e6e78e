/* Rows of 8-bit RGB to the elements of a tensor. A byte has 256 values, so what each becomes in
 * each channel is computed once, in double; per pixel it is a look-up, whatever the datatype. */
#ifndef SLUICE_SERVE_PICTURE_NORMALISE_H
#define SLUICE_SERVE_PICTURE_NORMALISE_H

#include <stdint.h>

#include "serve/picture/picture.h"

struct normalise {
    const struct picture_plan *plan;
    uint32_t n_channels;
    size_t element_bytes;
    size_t channel_step; /* elements from a channel of a pixel to the next */
    size_t pixel_step;   /* elements from a pixel to the one on its right */
    /* The bits of the elements, in the low bytes. */
    uint64_t table[PICTURE_MAX_CHANNELS][256];
};

/* `plan` is one that picture_plan_bytes accepts; it is borrowed. */
void normalise_init(struct normalise *normalise, const struct picture_plan *plan);
/* Fills all of `out`, picture_plan_bytes long and aligned to its datatype, with plan->pad. */
void normalise_pad(const struct normalise *normalise, void *out);
/* Writes `n` pixels from column `x` of row `y` on. */
void normalise_row(const struct normalise *normalise, void *out, uint32_t x, uint32_t y, uint32_t n,
                   const uint8_t *rgb);

#endif
