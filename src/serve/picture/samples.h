/* Pixels of four samples: RGBA and CMYK, converted to RGB. The arithmetic is Pillow's, byte for
 * byte. */
#ifndef SLUICE_SERVE_PICTURE_SAMPLES_H
#define SLUICE_SERVE_PICTURE_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

/* `n` pixels, 4 n bytes to 3 n: drops alpha without blending. */
void samples_drop_alpha(const uint8_t *rgba, size_t n, uint8_t *rgb);
/* 4 n bytes to 4 n: premultiplies each colour by alpha / 255, rounded. */
void samples_multiply(const uint8_t *rgba, size_t n, uint8_t *multiplied);
/* 4 n bytes to 3 n: the reverse, clamped to a byte; with alpha 0 the colour is unchanged. */
void samples_divide(const uint8_t *multiplied, size_t n, uint8_t *rgb);
/* 4 n bytes to 3 n, by the simple formula without colour management. */
void samples_from_cmyk(const uint8_t *cmyk, size_t n, uint8_t *rgb);

#endif
