/* Strict UTF-8, by the table of well-formed byte sequences in the Unicode standard (table 3-7). */
#include "core/base/utf8.h"

#include <stdint.h>
#include <string.h>

static bool is_continuation(unsigned char c) {
    return (c & 0xc0) == 0x80;
}

/* Three bytes: E0 must not be overlong, ED must not be a surrogate. */
static bool is_three_byte_sequence(const unsigned char *p) {
    unsigned char low = p[0] == 0xe0 ? 0xa0 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : 0xbf;
    return p[1] >= low && p[1] <= high && is_continuation(p[2]);
}

/* Four bytes: F0 must not be overlong, F4 must not pass U+10FFFF. */
static bool is_four_byte_sequence(const unsigned char *p) {
    unsigned char low = p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xf4 ? 0x8f : 0xbf;
    return p[1] >= low && p[1] <= high && is_continuation(p[2]) && is_continuation(p[3]);
}

size_t utf8_char_len(const void *data, size_t n_bytes) {
    const unsigned char *p = data;
    if (n_bytes == 0) {
        return 0;
    }
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] < 0xc2 || p[0] > 0xf4) {
        return 0;
    }
    if (p[0] < 0xe0) {
        return n_bytes >= 2 && is_continuation(p[1]) ? 2 : 0;
    }
    if (p[0] < 0xf0) {
        return n_bytes >= 3 && is_three_byte_sequence(p) ? 3 : 0;
    }
    return n_bytes >= 4 && is_four_byte_sequence(p) ? 4 : 0;
}

/* A continuation byte with the low six bits of `code`. */
static char tail_byte(uint32_t code) {
    return (char)(0x80 | (code & 0x3f));
}

size_t utf8_encode(uint32_t code, char out[UTF8_MAX_BYTES]) {
    size_t n = 0;
    if (code < 0x80) {
        out[n++] = (char)code;
        return n;
    }
    if (code < 0x800) {
        out[n++] = (char)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        out[n++] = (char)(0xe0 | code >> 12);
        out[n++] = tail_byte(code >> 6);
    } else {
        out[n++] = (char)(0xf0 | code >> 18);
        out[n++] = tail_byte(code >> 12);
        out[n++] = tail_byte(code >> 6);
    }
    out[n++] = tail_byte(code);
    return n;
}

size_t utf8_valid_prefix(const void *data, size_t n_bytes) {
    const unsigned char *p = data;
    size_t at = 0;
    while (at < n_bytes) {
        if (n_bytes - at >= 8) {
            uint64_t word;
            memcpy(&word, p + at, 8);
            if ((word & 0x8080808080808080u) == 0) {
                at += 8;
                continue;
            }
        }
        size_t n = utf8_char_len(p + at, n_bytes - at);
        if (n == 0) {
            return at;
        }
        at += n;
    }
    return at;
}
