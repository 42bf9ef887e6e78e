/* Reads format and size from the head of a picture file without decoding it. A file that is not one
 * of four known formats is never passed to a decoder. */
#ifndef SLUICE_SERVE_PICTURE_HEAD_H
#define SLUICE_SERVE_PICTURE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "serve/picture/picture_part.h"

/* The maximum number of scans of a JPEG file; a progressive one has about ten. */
enum { HEAD_MAX_SCANS = 100 };

/* The first frame of a GIF file. */
struct head_frame {
    uint32_t left, top, width, height; /* the area that it covers */
    size_t n_bytes;                    /* offset of the frame's end in the file */
    size_t control;                    /* offset of the byte with the transparency flag; 0: none */
    uint8_t fill[3];                   /* colour of the area that it does not cover */
};

struct picture_head {
    enum picture_format format;
    uint32_t width, height; /* >= 1 */
    /* Pixels are palette indices or single bits (Pillow's modes P and 1), which cannot be
     * interpolated. */
    bool is_indexed;
    bool is_sequential; /* a JPEG file with one scan of all components, in the order of the rows */
    struct head_frame frame; /* PICTURE_GIF only */
};

/* Parses up to the size; a GIF or JPEG file up to the end of its first picture. Returns:
 * ST_BAD_PICTURE. Thread: any. */
enum status head_read(struct str file, struct picture_head *out, struct error *err) SLUICE_MUST_USE;
const char *head_format_name(enum picture_format format); /* "JPEG" */

/* Finds the next marker of a JPEG file from *at on, skipping coded and stray bytes. Returns: its
 * second byte, with *at after it; 0: none. */
uint32_t head_jpeg_marker(struct str file, size_t *at);
bool head_jpeg_stands_alone(uint32_t marker); /* without length and data */

/* Numbers in files; the caller checked the bounds. */
static inline uint32_t head_byte(struct str file, size_t at) {
    return (uint8_t)file.ptr[at];
}
static inline uint32_t head_le16(struct str file, size_t at) {
    return head_byte(file, at) | head_byte(file, at + 1) << 8;
}
static inline uint32_t head_be16(struct str file, size_t at) {
    return head_byte(file, at) << 8 | head_byte(file, at + 1);
}

#endif
