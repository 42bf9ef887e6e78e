/* Rows of pixels on their way from the decoder to tensor elements: RGBA and CMYK become RGB, and
 * RGB becomes the elements of a picture_plan. */
#ifndef SLUICE_SERVE_PICTURE_PIXELS_H
#define SLUICE_SERVE_PICTURE_PIXELS_H

#include <stddef.h>
#include <stdint.h>

#include "serve/picture/picture.h"

/* ---- samples to RGB -------------------------------------------------------------------------- */

/* Pixels of four samples: RGBA and CMYK, converted to RGB. The arithmetic is Pillow's, byte for
 * byte. */

/* `n` pixels, 4 n bytes to 3 n: drops alpha without blending. */
void samples_drop_alpha(const uint8_t *rgba, size_t n, uint8_t *rgb);
/* 4 n bytes to 4 n: premultiplies each colour by alpha / 255, rounded. */
void samples_multiply(const uint8_t *rgba, size_t n, uint8_t *multiplied);
/* 4 n bytes to 3 n: the reverse, clamped to a byte; with alpha 0 the colour is unchanged. */
void samples_divide(const uint8_t *multiplied, size_t n, uint8_t *rgb);
/* 4 n bytes to 3 n, by the simple formula without colour management. */
void samples_from_cmyk(const uint8_t *cmyk, size_t n, uint8_t *rgb);

/* ---- RGB to elements ------------------------------------------------------------------------- */

/* Converts rows of 8-bit RGB to tensor elements. The element for each of the 256 byte values of a
 * channel is computed once, in double; a pixel is then a table lookup, for every datatype. */

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
