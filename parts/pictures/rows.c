/* Grey is tripled, alpha left out, the low byte of 16 bits cut off; CMYK becomes RGB by the plain
 * formula, without a profile. It refuses to be colour management. */
#include "pictures/rows.h"

/* One band, or one and alpha. */
static void from_grey8(const void *pixels, size_t n_bands, size_t n, uint8_t *rgb) {
    const uint8_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        rgb[0] = rgb[1] = rgb[2] = from[0];
        from += n_bands;
        rgb += 3;
    }
}

static void from_grey16(const void *pixels, size_t n_bands, size_t n, uint8_t *rgb) {
    const uint16_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        rgb[0] = rgb[1] = rgb[2] = (uint8_t)(from[0] >> 8);
        from += n_bands;
        rgb += 3;
    }
}

/* Three bands, or three and alpha. */
static void from_rgb8(const void *pixels, size_t n_bands, size_t n, uint8_t *rgb) {
    const uint8_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        rgb[0] = from[0];
        rgb[1] = from[1];
        rgb[2] = from[2];
        from += n_bands;
        rgb += 3;
    }
}

static void from_rgb16(const void *pixels, size_t n_bands, size_t n, uint8_t *rgb) {
    const uint16_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        rgb[0] = (uint8_t)(from[0] >> 8);
        rgb[1] = (uint8_t)(from[1] >> 8);
        rgb[2] = (uint8_t)(from[2] >> 8);
        from += n_bands;
        rgb += 3;
    }
}

/* a x b / 255, to the nearest. */
static uint8_t product(unsigned a, unsigned b) {
    unsigned x = a * b + 128;
    return (uint8_t)((x + (x >> 8)) >> 8);
}

/* What ink leaves of the light: (255 - C)(255 - K) / 255. */
static void from_cmyk8(const void *pixels, size_t n_bands, size_t n, uint8_t *rgb) {
    const uint8_t *from = pixels;
    for (size_t i = 0; i < n; i++) {
        unsigned light = 255u - from[3];
        rgb[0] = product(255u - from[0], light);
        rgb[1] = product(255u - from[1], light);
        rgb[2] = product(255u - from[2], light);
        from += n_bands;
        rgb += 3;
    }
}

rows_convert *rows_converter(const VipsImage *image) {
    bool wide = image->BandFmt == VIPS_FORMAT_USHORT;
    if ((!wide && image->BandFmt != VIPS_FORMAT_UCHAR) || image->Coding != VIPS_CODING_NONE) {
        return NULL;
    }
    if (image->Type == VIPS_INTERPRETATION_CMYK) {
        return !wide && image->Bands >= 4 ? from_cmyk8 : NULL;
    }
    if (image->Bands == 1 || image->Bands == 2) {
        return wide ? from_grey16 : from_grey8;
    }
    if (image->Bands == 3 || image->Bands == 4) {
        return wide ? from_rgb16 : from_rgb8;
    }
    return NULL;
}
