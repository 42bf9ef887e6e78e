/* Parses the head of a picture file: the format by its first bytes, then the size. A GIF file is
 * parsed to the end of its first frame, which is all that is decoded (its size is the logical
 * screen's, enlarged to contain the frame). A JPEG file's markers are parsed to the end, to count
 * scans: each scan is a pass over the whole picture and may cost a dozen bytes only, so a small
 * file could take hours to decode. */
#include "serve/picture/head.h"

#include <inttypes.h>
#include <stdbool.h>

/* ---- GIF ------------------------------------------------------------------------------------- */

enum { /* GIF89a, 18 to 24 */
       SCREEN_AT = 6,
       BLOCKS_AT = 13, /* also the offset of the global colour table */
       FRAME = 0x2c,
       EXTENSION = 0x21,
       CONTROL = 0xf9,
       HAS_COLORS = 0x80,
       IS_TRANSPARENT = 0x01
};

/* A colour table: offset and number of entries. */
struct colors {
    size_t at;
    uint32_t n;
};

/* Reads the colour table that a packed byte announces. Returns: false when the file is
 * truncated. */
static bool read_colors(struct str file, uint32_t packed, size_t *at, struct colors *out) {
    if ((packed & HAS_COLORS) != 0) {
        *out = (struct colors){*at, UINT32_C(2) << (packed & 7)};
        *at += (size_t)out->n * 3;
    }
    return *at <= file.len;
}

/* Skips sub-blocks up to the empty one. Returns: false when the file is truncated. */
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

/* Skips the extensions before the first frame. Returns: false when there is no frame. */
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

/* Uncovered pixels have the transparent colour, else the first one, as in Pillow when transparency
 * is dropped. */
static void read_fill(struct str file, struct colors colors, struct head_frame *out) {
    uint32_t index = 0;
    if (out->control != 0 && (head_byte(file, out->control) & IS_TRANSPARENT) != 0) {
        index = head_byte(file, out->control + 3);
    }
    for (size_t i = 0; i < 3 && index < colors.n; i++) {
        out->fill[i] = (uint8_t)head_byte(file, colors.at + (size_t)index * 3 + i);
    }
}

/* Returns: whether the table is a palette and not the grey ramp, for which Pillow uses its
 * greyscale mode, as it does without a table. */
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
    at++; /* initial LZW code size */
    if (!skip_blocks(file, &at)) {
        return false;
    }
    frame->n_bytes = at;
    return true;
}

static enum status head_read_gif(struct str file, struct picture_head *out, struct error *err) {
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

/* ---- JPEG ------------------------------------------------------------------------------------ */

enum { /* ITU-T T.81, table B.1 */
       MARKER_TEM = 0x01,
       MARKER_SOF0 = 0xc0,
       MARKER_SOF1 = 0xc1,
       MARKER_DHT = 0xc4,
       MARKER_JPG = 0xc8,
       MARKER_DAC = 0xcc,
       MARKER_SOF15 = 0xcf,
       MARKER_RST0 = 0xd0,
       MARKER_SOI = 0xd8,
       MARKER_EOI = 0xd9,
       MARKER_SOS = 0xda
};

/* Coded data contains ff 00 for a byte ff. Decoders skip the same bytes. */
uint32_t head_jpeg_marker(struct str file, size_t *at) {
    while (*at < file.len) {
        const char *ff = memchr(file.ptr + *at, 0xff, file.len - *at);
        if (!ff) {
            break;
        }
        *at = (size_t)(ff - file.ptr) + 1;
        while (*at < file.len && head_byte(file, *at) == 0xff) {
            (*at)++; /* fill bytes */
        }
        if (*at < file.len && head_byte(file, *at) != 0) {
            return head_byte(file, (*at)++);
        }
    }
    return 0;
}

bool head_jpeg_stands_alone(uint32_t marker) {
    return marker == MARKER_TEM || (marker >= MARKER_RST0 && marker <= MARKER_SOI);
}

static bool is_frame(uint32_t marker) {
    return marker >= MARKER_SOF0 && marker <= MARKER_SOF15 && marker != MARKER_DHT &&
           marker != MARKER_JPG && marker != MARKER_DAC;
}

static enum status head_read_jpeg(struct str file, struct picture_head *out, struct error *err) {
    size_t at = 2;
    unsigned n_scans = 0;
    uint32_t n_components = 0, n_scanned = 0; /* of the frame; of the first scan */
    bool framed = false;
    for (;;) {
        uint32_t marker = head_jpeg_marker(file, &at);
        if (head_jpeg_stands_alone(marker)) {
            continue;
        }
        if (marker == 0 || marker == MARKER_EOI || file.len - at < 2) {
            break;
        }
        size_t n_bytes = head_be16(file, at); /* the length field included */
        if (n_bytes < 2 || n_bytes > file.len - at) {
            break;
        }
        if (is_frame(marker) && !framed &&
            n_bytes >= 7) { /* B.2.2: length, precision, lines, samples */
            out->height = head_be16(file, at + 3);
            out->width = head_be16(file, at + 5);
            out->is_sequential = marker == MARKER_SOF0 || marker == MARKER_SOF1;
            n_components = n_bytes >= 8 ? head_byte(file, at + 7) : 0;
            framed = true;
        }
        if (marker == MARKER_SOS && n_scans++ == 0 && n_bytes >= 3) {
            n_scanned = head_byte(file, at + 2); /* B.2.3 */
        }
        at += n_bytes;
    }
    if (!framed) {
        return error_set(
            err, ST_BAD_PICTURE,
            "the JPEG file, of %zu bytes, has no frame header: it is cut off or not one", file.len);
    }
    /* Where the first scan lacks a component decoders keep the whole picture, whether other scans
     * follow or not. */
    out->is_sequential = out->is_sequential && n_scans == 1 && n_scanned == n_components;
    if (n_scans > HEAD_MAX_SCANS) {
        return error_set(err, ST_BAD_PICTURE, "the JPEG file has %u scans, at most %d are decoded",
                         n_scans, HEAD_MAX_SCANS);
    }
    return ST_OK;
}

const char *head_format_name(enum picture_format format) {
    static const char *const names[] = {[PICTURE_JPEG] = "JPEG",
                                        [PICTURE_PNG] = "PNG",
                                        [PICTURE_WEBP] = "WebP",
                                        [PICTURE_GIF] = "GIF"};
    return names[format];
}

/* Returns: whether `magic` is at offset `at`. */
static bool has_magic(struct str file, size_t at, struct str magic) {
    return file.len >= at && str_starts_with(str_make(file.ptr + at, file.len - at), magic);
}

static enum status error_cut_off(enum picture_format format, struct str file, struct error *err) {
    return error_set(err, ST_BAD_PICTURE, "the %s file ends within its head, after %zu bytes",
                     head_format_name(format), file.len);
}

/* PNG (3rd edition) 5.2, 11.2.1: the signature, then the chunk IHDR with size, bit depth and colour
 * type. */
static enum status read_png(struct str file, struct picture_head *out, struct error *err) {
    enum { DEPTH_AT = 24, COLOR_TYPE_AT = 25, GREY = 0, INDEXED = 3 };
    static const struct str ihdr = {"\0\0\0\rIHDR", 8};
    if (file.len < 33) { /* IHDR: 13 bytes of data and a checksum */
        return error_cut_off(PICTURE_PNG, file, err);
    }
    if (!has_magic(file, 8, ihdr)) {
        return error_set(err, ST_BAD_PICTURE, "the PNG file does not begin with its IHDR chunk");
    }
    out->width = head_be16(file, 16) << 16 | head_be16(file, 18);
    out->height = head_be16(file, 20) << 16 | head_be16(file, 22);
    uint32_t color_type = head_byte(file, COLOR_TYPE_AT);
    out->is_indexed =
        color_type == INDEXED || (color_type == GREY && head_byte(file, DEPTH_AT) == 1);
    return ST_OK;
}

/* RFC 9649, 2.4 to 2.7: RIFF, size, WEBP, then a VP8, VP8L or VP8X chunk. */
static enum status read_webp(struct str file, struct picture_head *out, struct error *err) {
    enum { DATA = 20 /* offset of the first chunk's data */ };
    if (file.len < DATA + 10) {
        return error_cut_off(PICTURE_WEBP, file, err);
    }
    if (has_magic(file, 12, STR("VP8X"))) {
        out->width = (head_le16(file, DATA + 4) | head_byte(file, DATA + 6) << 16) + 1;
        out->height = (head_le16(file, DATA + 7) | head_byte(file, DATA + 9) << 16) + 1;
    } else if (has_magic(file, 12, STR("VP8 ")) && has_magic(file, DATA + 3, STR("\x9d\x01\x2a"))) {
        out->width = head_le16(file, DATA + 6) & 0x3fff;
        out->height = head_le16(file, DATA + 8) & 0x3fff;
    } else if (has_magic(file, 12, STR("VP8L")) && head_byte(file, DATA) == 0x2f) {
        uint32_t bits = head_le16(file, DATA + 1) | head_le16(file, DATA + 3) << 16;
        out->width = (bits & 0x3fff) + 1;
        out->height = (bits >> 14 & 0x3fff) + 1;
    } else {
        return error_set(err, ST_BAD_PICTURE,
                         "the WebP file does not begin with a VP8, VP8L or VP8X chunk");
    }
    return ST_OK;
}

static enum status read_size(struct str file, struct picture_head *out, struct error *err) {
    if (has_magic(file, 0, STR("\xff\xd8\xff"))) {
        out->format = PICTURE_JPEG;
        return head_read_jpeg(file, out, err);
    }
    if (has_magic(file, 0, STR("\x89PNG\r\n\x1a\n"))) {
        out->format = PICTURE_PNG;
        return read_png(file, out, err);
    }
    if (has_magic(file, 0, STR("GIF87a")) || has_magic(file, 0, STR("GIF89a"))) {
        out->format = PICTURE_GIF;
        return head_read_gif(file, out, err);
    }
    if (has_magic(file, 0, STR("RIFF")) && has_magic(file, 8, STR("WEBP"))) {
        out->format = PICTURE_WEBP;
        return read_webp(file, out, err);
    }
    if (file.len == 0) {
        return error_set(err, ST_BAD_PICTURE, "expected a picture file, got no bytes");
    }
    char bytes[3 * 8 + 1] = "";
    for (size_t i = 0; i < file.len && i < 8; i++) {
        static const char digits[] = "0123456789abcdef";
        bytes[3 * i] = ' ';
        bytes[3 * i + 1] = digits[head_byte(file, i) >> 4];
        bytes[3 * i + 2] = digits[head_byte(file, i) & 15];
    }
    return error_set(err, ST_BAD_PICTURE,
                     "expected a JPEG, PNG, WebP or GIF file, got %zu bytes that begin with%s",
                     file.len, bytes);
}

enum status head_read(struct str file, struct picture_head *out, struct error *err) {
    *out = (struct picture_head){0};
    enum status st = read_size(file, out, err);
    if (st == ST_OK && (out->width == 0 || out->height == 0)) {
        return error_set(err, ST_BAD_PICTURE,
                         "the %s file says that it is %" PRIu32 " x %" PRIu32 " pixels",
                         head_format_name(out->format), out->width, out->height);
    }
    return st;
}
