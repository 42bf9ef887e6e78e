/* Pixels of four samples: colours with an opacity, and inks. Both become RGB; the arithmetic is
 * Pillow's, so that bytes are. */
#ifndef SLUICE_SERVE_PICTURE_SAMPLES_H
#define SLUICE_SERVE_PICTURE_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

/* Of `n` pixels, 4 n bytes to 3 n: the fourth is left out, not blended. */
void samples_drop_alpha(const uint8_t *rgba, size_t n, uint8_t *rgb);
/* 4 n bytes to 4 n: each colour times alpha / 255, to the nearest. */
void samples_multiply(const uint8_t *rgba, size_t n, uint8_t *multiplied);
/* 4 n bytes to 3 n: the way back, cut to a byte; where nothing is opaque, the colour as it is. */
void samples_divide(const uint8_t *multiplied, size_t n, uint8_t *rgb);
/* 4 n bytes to 3 n, by the plain formula: what ink leaves of the light. It refuses to be colour
 * management. */
void samples_from_cmyk(const uint8_t *cmyk, size_t n, uint8_t *rgb);

#endif
