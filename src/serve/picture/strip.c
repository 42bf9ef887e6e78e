/* Removes everything but the first picture from a file. Pieces are dropped whole or copied
 * unchanged. */
#include "serve/picture/strip.h"

#include <stdbool.h>
#include <stdlib.h>

struct strip_output {
    char *ptr; /* capacity: the file and one byte */
    size_t len;
};

static void append_range(struct strip_output *output, struct str file, size_t from, size_t to) {
    to = to < file.len ? to : file.len;
    if (from < to) {
        memcpy(output->ptr + output->len, file.ptr + from, to - from);
        output->len += to - from;
    }
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

/* ITU-T T.81, B.2.4: comments and application data, except JFIF (APP0) and Adobe (APP14), which
 * define the components. */
static bool is_metadata_marker(uint32_t marker) {
    enum { APP0 = 0xe0, APP14 = 0xee, APP15 = 0xef, COM = 0xfe };
    return marker == COM || (marker > APP0 && marker <= APP15 && marker != APP14);
}

/* Strips the segments before the first scan, and copies the rest. */
static void strip_jpeg(struct strip_output *output, struct str file) {
    enum { SOS = 0xda };
    size_t at = 2, kept = 0; /* `kept`: the end of what is decided */
    for (;;) {
        size_t before = at;
        uint32_t marker = head_jpeg_marker(file, &at);
        if (marker == 0 || marker == SOS || file.len - at < 2) {
            break;
        }
        if (head_jpeg_stands_alone(marker)) {
            continue;
        }
        size_t end = at + head_be16(file, at);
        if (is_metadata_marker(marker)) {
            append_range(output, file, kept, before);
            kept = end;
        }
        if (end >= file.len) {
            break;
        }
        at = end;
    }
    append_range(output, file, kept, file.len);
}

/* ---- PNG ------------------------------------------------------------------------------------- */

/* PNG (3rd edition) 5.3, 5.4: a chunk is length, name, data, checksum; a name with a lower-case
 * first letter is ancillary. Bytes after IEND are ignored. */
static void strip_png(struct strip_output *output, struct str file) {
    enum { SIGNATURE = 8, AROUND = 12, ANCILLARY = 0x20 };
    size_t at = SIGNATURE;
    bool ended = false;
    append_range(output, file, 0, SIGNATURE);
    while (!ended && file.len - at >= SIGNATURE) {
        size_t n = (size_t)head_be16(file, at) << 16 | head_be16(file, at + 2);
        size_t left = file.len - at;
        size_t end = n <= left && left - n >= AROUND ? at + n + AROUND : file.len;
        if ((head_byte(file, at + 4) & ANCILLARY) == 0) {
            append_range(output, file, at, end);
        }
        ended = memcmp(file.ptr + at + 4, "IEND", 4) == 0;
        at = end;
    }
}

/* ---- WebP ------------------------------------------------------------------------------------ */

/* Returns: whether a chunk belongs to the (first) picture. */
static bool is_webp_picture(const char *name) {
    static const char wanted[][5] = {"VP8 ", "VP8L", "VP8X", "ALPH", "ANIM", "ANMF"};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (memcmp(name, wanted[i], 4) == 0) {
            return true;
        }
    }
    return false;
}

/* RFC 9649, 2.3 to 2.7: a chunk is name, size, data, and padding to an even size; bytes beyond the
 * RIFF size are ignored. Of an animation only the first frame is kept; flags and the RIFF size are
 * updated. */
static void strip_webp(struct strip_output *output, struct str file) {
    enum { HEAD = 12, NAME_AND_SIZE = 8, FLAGS_AT = 20, NOTES = 0x20 | 0x08 | 0x04 };
    size_t at = HEAD, dropped = 0;
    uint32_t n_riff = head_le16(file, 4) | head_le16(file, 6) << 16;
    size_t n_all = (size_t)n_riff + NAME_AND_SIZE;
    bool ended = false;
    file.len = n_all < file.len ? n_all : file.len;
    append_range(output, file, 0, HEAD);
    while (!ended && at + NAME_AND_SIZE <= file.len) {
        const char *name = file.ptr + at;
        size_t n = head_le16(file, at + 4) | (size_t)head_le16(file, at + 6) << 16;
        size_t whole = NAME_AND_SIZE + n + (n & 1);
        size_t end = whole <= file.len - at ? at + whole : file.len;
        if (is_webp_picture(name)) {
            append_range(output, file, at, end);
        } else {
            dropped += whole;
        }
        ended = memcmp(name, "ANMF", 4) == 0;
        at = end;
    }
    n_riff = ended ? (uint32_t)output->len - 8 : n_riff - (uint32_t)dropped;
    for (int i = 0; i < 4; i++) {
        output->ptr[4 + i] = (char)(n_riff >> 8 * i);
    }
    if (output->len > FLAGS_AT && memcmp(output->ptr + HEAD, "VP8X", 4) == 0) {
        output->ptr[FLAGS_AT] = (char)(output->ptr[FLAGS_AT] & ~NOTES);
    }
}

/* ---- GIF ------------------------------------------------------------------------------------- */

struct str strip_copy(struct str file, const struct picture_head *head) {
    struct strip_output output = {.ptr = malloc(file.len + 1)};
    if (!output.ptr) {
        return (struct str){0};
    }
    switch (head->format) {
    case PICTURE_JPEG:
        strip_jpeg(&output, file);
        break;
    case PICTURE_PNG:
        strip_png(&output, file);
        break;
    case PICTURE_WEBP:
        strip_webp(&output, file);
        break;
    case PICTURE_GIF: /* the first frame without transparency, so that every pixel is painted */
        append_range(&output, file, 0, head->frame.n_bytes);
        append_range(&output, (struct str){"\x3b", 1}, 0, 1); /* the trailer */
        if (head->frame.control != 0) {
            output.ptr[head->frame.control] = (char)(output.ptr[head->frame.control] & ~1);
        }
        break;
    }
    return str_make(output.ptr, output.len);
}
