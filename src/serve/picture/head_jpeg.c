/* The head of a JPEG file: the markers up to its end, for the size and the number of scans. Each
 * scan passes over the whole picture, and an empty one costs a dozen bytes, so that a small file
 * could ask for hours. It refuses to look into scans. */
#include "serve/picture/head.h"

#include <stdbool.h>

enum { /* ITU-T T.81, table B.1 */
       MARKER_TEM = 0x01,
       MARKER_SOF0 = 0xc0,
       MARKER_DHT = 0xc4,
       MARKER_JPG = 0xc8,
       MARKER_DAC = 0xcc,
       MARKER_SOF15 = 0xcf,
       MARKER_RST0 = 0xd0,
       MARKER_SOI = 0xd8,
       MARKER_EOI = 0xd9,
       MARKER_SOS = 0xda
};

/* In coded bytes ff 00 is a byte ff. What is skipped is what decoders skip. */
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

enum status head_read_jpeg(struct str file, struct picture_head *out, struct error *err) {
    size_t at = 2;
    unsigned n_scans = 0;
    bool framed = false;
    for (;;) {
        uint32_t marker = head_jpeg_marker(file, &at);
        if (head_jpeg_stands_alone(marker)) {
            continue;
        }
        if (marker == 0 || marker == MARKER_EOI || file.len - at < 2) {
            break;
        }
        size_t n_bytes = head_be16(file, at); /* these two included */
        if (n_bytes < 2 || n_bytes > file.len - at) {
            break;
        }
        if (is_frame(marker) && !framed &&
            n_bytes >= 7) { /* B.2.2: length, precision, lines, samples */
            out->height = head_be16(file, at + 3);
            out->width = head_be16(file, at + 5);
            framed = true;
        }
        n_scans += marker == MARKER_SOS ? 1 : 0;
        at += n_bytes;
    }
    if (!framed) {
        return error_set(
            err, ST_BAD_PICTURE,
            "the JPEG file, of %zu bytes, has no frame header: it is cut off or not one", file.len);
    }
    if (n_scans > HEAD_MAX_SCANS) {
        return error_set(err, ST_BAD_PICTURE, "the JPEG file has %u scans, at most %d are decoded",
                         n_scans, HEAD_MAX_SCANS);
    }
    return ST_OK;
}
