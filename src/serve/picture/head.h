/* What the head of a picture file says, read without decoding anything: its kind by its first
 * bytes, and the size that decoding it will take. Four kinds are known; whatever else a file claims
 * to be, no decoder ever sees it. */
#ifndef SLUICE_SERVE_PICTURE_HEAD_H
#define SLUICE_SERVE_PICTURE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "serve/picture/picture_part.h"

/* Passes over the whole picture that one JPEG file may ask for (a progressive one has about
 * ten). */
enum { HEAD_MAX_SCANS = 100 };

/* The first frame of a GIF file. */
struct head_frame {
    uint32_t left, top, width, height; /* what it covers of the picture */
    size_t n_bytes;                    /* of the file, up to the end of this frame */
    size_t control;  /* offset of the byte that says whether a colour is transparent; 0: none */
    uint8_t fill[3]; /* the colour of what it does not cover */
};

struct picture_head {
    enum picture_format format;
    uint32_t width, height; /* >= 1 */
    /* Its pixels are numbers of colours in a palette, or single bits (Pillow's modes P and 1):
     * nothing lies between two of them. */
    bool is_indexed;
    struct head_frame frame; /* PICTURE_GIF only */
};

/* Reads as far as the size, and for a GIF and a JPEG file to the end of its first picture.
 * Returns: ST_BAD_PICTURE. Thread: any. */
enum status head_read(struct str file, struct picture_head *out, struct error *err)
    __attribute__((warn_unused_result));
const char *head_format_name(enum picture_format format); /* "JPEG" */

/* Finds the next marker of a JPEG file from `at` on, over the coded bytes of a scan and over bytes
 * that should not be there. Returns: its second byte, `at` behind it; 0: none. */
uint32_t head_jpeg_marker(struct str file, size_t *at);
bool head_jpeg_stands_alone(uint32_t marker); /* no length and no data follow */

/* Numbers in files; the caller has looked that the bytes are there. */
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
