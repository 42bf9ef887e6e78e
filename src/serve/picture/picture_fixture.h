/* Minimal files of each format, some with the head only, and a fake part: for tests that need no
 * library. */
#ifndef SLUICE_SERVE_PICTURE_PICTURE_FIXTURE_H
#define SLUICE_SERVE_PICTURE_PICTURE_FIXTURE_H

#include <stdint.h>

#include "core/base/str.h"
#include "serve/picture/picture_part.h"

#define FIXTURE_PNG_BEGIN "\x89PNG\r\n\x1a\n"
/* Width and height are literals of four bytes each; `pixel` of two: bit depth, colour type. */
#define FIXTURE_IHDR_OF(width, height, pixel)                                                      \
    "\0\0\0\rIHDR" width height pixel "\0\0\0"                                                     \
    "CRC!"
#define FIXTURE_IHDR(width, height) FIXTURE_IHDR_OF(width, height, "\x08\x02")
#define FIXTURE_IEND                                                                               \
    "\0\0\0\0IEND"                                                                                 \
    "CRC!"
#define FIXTURE_PNG_OF(width, height, pixel)                                                       \
    FIXTURE_PNG_BEGIN FIXTURE_IHDR_OF(width, height, pixel) FIXTURE_IEND
#define FIXTURE_PNG(width, height) FIXTURE_PNG_BEGIN FIXTURE_IHDR(width, height) FIXTURE_IEND

/* 2 x 2 pixels; the frame is 1 x 1 at (1, 0); the palette is red, green, blue, white; green is
 * transparent. */
#define FIXTURE_GIF_SCREEN "GIF89a\x02\0\x02\0\x81\0\0\xff\0\0\0\xff\0\0\0\xff\xff\xff\xff"
#define FIXTURE_GIF_CONTROL "\x21\xf9\x04\x01\0\0\x01\0"
#define FIXTURE_GIF_FRAME                                                                          \
    "\x2c\x01\0\0\0\x01\0\x01\0\0"                                                                 \
    "\x02\x02\x4c\x01\0"
#define FIXTURE_GIF FIXTURE_GIF_SCREEN FIXTURE_GIF_CONTROL FIXTURE_GIF_FRAME "\x3b"

/* A part whose pixels are (column, row, 7). */
static inline enum picture_part_result fixture_decode(const struct picture_part_file *file,
                                                      const struct picture_part_sink *sink) {
    uint8_t row[64 * 3] = {0};
    if (!sink->start(sink->user, PICTURE_SAMPLES_RGB)) {
        return PICTURE_PART_NO_MEMORY;
    }
    for (uint32_t y = 0; y < file->height; y++) {
        for (uint32_t x = 0; x < file->width && x < 64; x++) {
            row[x * 3] = (uint8_t)x;
            row[x * 3 + 1] = (uint8_t)y;
            row[x * 3 + 2] = 7;
        }
        sink->row(sink->user, row);
    }
    return PICTURE_PART_OK;
}

#endif
