/* The head of a GIF file, up to the end of its first frame, which is all that is ever decoded. The
 * size is the logical screen's, grown to hold the frame. It refuses to decompress. */
#include "serve/picture/head.h"

#include <inttypes.h>
#include <stdbool.h>

enum { /* GIF89a, 18 to 24 */
       SCREEN_AT = 6,
       BLOCKS_AT = 13, /* or the global colours */
       FRAME = 0x2c,
       EXTENSION = 0x21,
       CONTROL = 0xf9,
       HAS_COLORS = 0x80,
       IS_TRANSPARENT = 0x01
};

/* A table of colours: where, and how many. */
struct colors {
    size_t at;
    uint32_t n;
};

/* The table that a packed byte announces. Returns: false when the file ends before it does. */
static bool read_colors(struct str file, uint32_t packed, size_t *at, struct colors *out) {
    if ((packed & HAS_COLORS) != 0) {
        *out = (struct colors){*at, UINT32_C(2) << (packed & 7)};
        *at += (size_t)out->n * 3;
    }
    return *at <= file.len;
}

/* Sub-blocks up to the empty one. Returns: false when the file ends before it. */
static bool skip_blocks(struct str file, size_t *at) {
    while (*at < file.len) {
        uint32_t n = head_byte(file, *at);
        *at += 1 + (size_t)n;
        if (n == 0) {
            return true;
        }
    }
    return false;
}

/* Extensions in front of the frame. Returns: false when there is no frame. */
static bool find_frame(struct str file, size_t *at, struct head_frame *out) {
    while (*at + 2 <= file.len && head_byte(file, *at) == EXTENSION) {
        bool control = head_byte(file, *at + 1) == CONTROL;
        *at += 2;
        if (control && *at + 6 <= file.len && head_byte(file, *at) == 4) {
            out->control = *at + 1;
        }
        if (!skip_blocks(file, at)) {
            return false;
        }
    }
    return *at + 10 <= file.len && head_byte(file, *at) == FRAME;
}

/* What the frame does not cover has the transparent colour, else the first one: what Pillow shows
 * there when transparency is dropped. */
static void read_fill(struct str file, struct colors colors, struct head_frame *out) {
    uint32_t index = 0;
    if (out->control != 0 && (head_byte(file, out->control) & IS_TRANSPARENT) != 0) {
        index = head_byte(file, out->control + 3);
    }
    for (size_t i = 0; i < 3 && index < colors.n; i++) {
        out->fill[i] = (uint8_t)head_byte(file, colors.at + (size_t)index * 3 + i);
    }
}

/* Whether number i is not simply the grey i throughout. Where it is, or where there is no table,
 * Pillow takes the picture for one of grey. */
static bool is_palette(struct str file, struct colors colors) {
    for (uint32_t i = 0; i < colors.n * 3; i++) {
        if (head_byte(file, colors.at + i) != i / 3) {
            return true;
        }
    }
    return false;
}

static bool read_frame(struct str file, struct picture_head *out) {
    struct head_frame *frame = &out->frame;
    struct colors colors = {0, 0};
    size_t at = BLOCKS_AT;
    if (!read_colors(file, head_byte(file, SCREEN_AT + 4), &at, &colors) ||
        !find_frame(file, &at, frame)) {
        return false;
    }
    frame->left = head_le16(file, at + 1);
    frame->top = head_le16(file, at + 3);
    frame->width = head_le16(file, at + 5);
    frame->height = head_le16(file, at + 7);
    uint32_t packed = head_byte(file, at + 9);
    at += 10;
    if (!read_colors(file, packed, &at, &colors)) {
        return false;
    }
    read_fill(file, colors, frame);
    out->is_indexed = is_palette(file, colors);
    at++; /* the size of the first codes */
    if (!skip_blocks(file, &at)) {
        return false;
    }
    frame->n_bytes = at;
    return true;
}

enum status head_read_gif(struct str file, struct picture_head *out, struct error *err) {
    if (file.len < BLOCKS_AT || !read_frame(file, out)) {
        return error_set(err, ST_BAD_PICTURE,
                         "the GIF file, of %zu bytes, ends before its first frame does", file.len);
    }
    const struct head_frame *frame = &out->frame;
    uint32_t right = frame->left + frame->width, bottom = frame->top + frame->height;
    out->width = head_le16(file, SCREEN_AT);
    out->height = head_le16(file, SCREEN_AT + 2);
    out->width = out->width < right ? right : out->width;
    out->height = out->height < bottom ? bottom : out->height;
    if (frame->width == 0 || frame->height == 0) {
        return error_set(err, ST_BAD_PICTURE,
                         "the first frame of the GIF file is %" PRIu32 " x %" PRIu32 " pixels",
                         frame->width, frame->height);
    }
    return ST_OK;
}
