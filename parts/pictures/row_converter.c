/* Grey is copied to three channels, 16 bits are cut to the high byte; alpha and inks are passed on
 * (serve/picture converts them). */
#include "pictures/row_converter.h"

enum { RGB = 3, FOUR = 4 };

/* One band, with or without alpha. */
static void from_grey8(const struct rows_converter *converter, const void *pixels, size_t n,
                       uint8_t *out) {
    const uint8_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        out[0] = out[1] = out[2] = from[0];
        if (converter->n_out == FOUR) {
            out[3] = from[1];
        }
        from += converter->n_bands;
        out += converter->n_out;
    }
}

static void from_grey16(const struct rows_converter *converter, const void *pixels, size_t n,
                        uint8_t *out) {
    const uint16_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        out[0] = out[1] = out[2] = (uint8_t)(from[0] >> 8);
        if (converter->n_out == FOUR) {
            out[3] = (uint8_t)(from[1] >> 8);
        }
        from += converter->n_bands;
        out += converter->n_out;
    }
}

/* At least as many bands as samples. */
static void from_color8(const struct rows_converter *converter, const void *pixels, size_t n,
                        uint8_t *out) {
    const uint8_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < converter->n_out; c++) {
            out[c] = from[c];
        }
        from += converter->n_bands;
        out += converter->n_out;
    }
}

static void from_color16(const struct rows_converter *converter, const void *pixels, size_t n,
                         uint8_t *out) {
    const uint16_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < converter->n_out; c++) {
            out[c] = (uint8_t)(from[c] >> 8);
        }
        from += converter->n_bands;
        out += converter->n_out;
    }
}

bool rows_converter_of(const VipsImage *image, struct rows_converter *out) {
    bool wide = image->BandFmt == VIPS_FORMAT_USHORT;
    bool inks = image->Type == VIPS_INTERPRETATION_CMYK;
    int n = image->Bands;
    if ((!wide && image->BandFmt != VIPS_FORMAT_UCHAR) || image->Coding != VIPS_CODING_NONE) {
        return false;
    }
    if (inks ? n < FOUR || wide : n < 1 || n > FOUR) {
        return false;
    }
    bool alpha = !inks && (n == 2 || n == FOUR);
    *out = (struct rows_converter){
        .samples = inks    ? PICTURE_SAMPLES_CMYK
                   : alpha ? PICTURE_SAMPLES_RGBA
                           : PICTURE_SAMPLES_RGB,
        .n_bands = (size_t)n,
        .n_out = inks || alpha ? FOUR : RGB,
        .convert =
            n < RGB ? (wide ? from_grey16 : from_grey8) : (wide ? from_color16 : from_color8),
    };
    return true;
}
