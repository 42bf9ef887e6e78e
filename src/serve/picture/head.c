/* Kinds by their first bytes; the sizes of PNG and WebP files. It refuses to guess: a file whose
 * first bytes are not exactly those of a kind is no picture, whatever is further in. */
#include "serve/picture/head.h"

#include <inttypes.h>
#include <stdbool.h>

const char *head_format_name(enum picture_format format) {
    static const char *const names[] = {[PICTURE_JPEG] = "JPEG",
                                        [PICTURE_PNG] = "PNG",
                                        [PICTURE_WEBP] = "WebP",
                                        [PICTURE_GIF] = "GIF"};
    return names[format];
}

/* Returns: whether `magic` stands at offset `at`. */
static bool has_magic(struct str file, size_t at, struct str magic) {
    return file.len >= at && str_starts_with(str_make(file.ptr + at, file.len - at), magic);
}

static enum status error_cut_off(enum picture_format format, struct str file, struct error *err) {
    return error_set(err, ST_BAD_PICTURE, "the %s file ends within its head, after %zu bytes",
                     head_format_name(format), file.len);
}

/* PNG (3rd edition) 5.2, 11.2.1: the signature, then the chunk IHDR with the size in front, and
 * what a pixel is. */
static enum status read_png(struct str file, struct picture_head *out, struct error *err) {
    enum { DEPTH_AT = 24, COLOR_TYPE_AT = 25, GREY = 0, INDEXED = 3 };
    static const struct str ihdr = {"\0\0\0\rIHDR", 8};
    if (file.len < 33) { /* the chunk with its 13 bytes and its checksum */
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

/* RFC 9649, 2.4 to 2.7: RIFF, its size, WEBP, then a chunk of one of three kinds. */
static enum status read_webp(struct str file, struct picture_head *out, struct error *err) {
    enum { DATA = 20 /* of the first chunk */ };
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
