/* Converts rows of any loader to 8-bit samples. */
#ifndef SLUICE_PARTS_PICTURES_ROW_CONVERTER_H
#define SLUICE_PARTS_PICTURES_ROW_CONVERTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <vips/vips.h>

#include "serve/picture/picture_part.h"

struct rows_converter {
    enum picture_samples samples;
    size_t n_bands; /* of the loader's pixel */
    size_t n_out;   /* bytes per pixel of `samples` */
    /* Converts `n` pixels, aligned to a sample, to n x n_out bytes. */
    void (*convert)(const struct rows_converter *converter, const void *pixels, size_t n,
                    uint8_t *out);
};

/* Returns: false for a pixel format that the four loaders do not produce. */
bool rows_converter_of(const VipsImage *image, struct rows_converter *out);

#endif
