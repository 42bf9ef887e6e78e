/* Conversion of RGBA and CMYK rows. */
#include "serve/picture/samples.h"

enum { RGB = 3, FOUR = 4, FULL = 255 };

/* a x b / 255, rounded. */
static uint8_t product(unsigned a, unsigned b) {
    unsigned x = a * b + 128;
    return (uint8_t)((x + (x >> 8)) >> 8);
}

void samples_drop_alpha(const uint8_t *rgba, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++) {
        rgb[0] = rgba[0];
        rgb[1] = rgba[1];
        rgb[2] = rgba[2];
        rgba += FOUR;
        rgb += RGB;
    }
}

void samples_multiply(const uint8_t *rgba, size_t n, uint8_t *multiplied) {
    for (size_t i = 0; i < n; i++) {
        for (int c = 0; c < RGB; c++) {
            multiplied[c] = product(rgba[c], rgba[3]);
        }
        multiplied[3] = rgba[3];
        rgba += FOUR;
        multiplied += FOUR;
    }
}

static uint8_t quotient(unsigned color, unsigned alpha) {
    unsigned value = color * FULL / alpha;
    return (uint8_t)(value < FULL ? value : FULL);
}

void samples_divide(const uint8_t *multiplied, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++) {
        unsigned alpha = multiplied[3];
        for (int c = 0; c < RGB; c++) {
            rgb[c] = alpha == 0 ? multiplied[c] : quotient(multiplied[c], alpha);
        }
        multiplied += FOUR;
        rgb += RGB;
    }
}

void samples_from_cmyk(const uint8_t *cmyk, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++) {
        unsigned light = FULL - cmyk[3];
        for (int c = 0; c < RGB; c++) {
            rgb[c] = product((unsigned)(FULL - cmyk[c]), light);
        }
        cmyk += FOUR;
        rgb += RGB;
    }
}
