/* Rows of whatever a loader gives, to 8-bit samples. */
#ifndef SLUICE_PARTS_PICTURES_ROWS_H
#define SLUICE_PARTS_PICTURES_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <vips/vips.h>

#include "serve/picture/picture_part.h"

struct rows_converter {
    enum picture_samples samples;
    size_t n_bands; /* that a pixel of the loader's has */
    size_t n_out;   /* bytes of a pixel of `samples` */
    /* Pixels, aligned to a sample, to n x n_out bytes. */
    void (*convert)(const struct rows_converter *converter, const void *pixels, size_t n,
                    uint8_t *out);
};

/* Returns: false for a picture of a kind that the four loaders do not give. */
bool rows_converter_of(const VipsImage *image, struct rows_converter *out);

#endif
