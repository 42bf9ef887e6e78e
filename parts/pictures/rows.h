/* Rows of whatever a loader gives, to 8-bit RGB. */
#ifndef SLUICE_PARTS_PICTURES_ROWS_H
#define SLUICE_PARTS_PICTURES_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <vips/vips.h>

/* `n` pixels of `n_bands` samples each, aligned to a sample, to n x 3 bytes. */
typedef void rows_convert(const void *pixels, size_t n_bands, size_t n, uint8_t *rgb);

/* Returns: NULL for a picture of a kind that the four loaders do not give. */
rows_convert *rows_converter(const VipsImage *image);

#endif
