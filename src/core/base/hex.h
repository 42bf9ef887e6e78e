/* Hexadecimal digits. */
#ifndef SLUICE_CORE_BASE_HEX_H
#define SLUICE_CORE_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* Returns: 0 to 15, in either case; -1 when it is no hexadecimal digit. */
static inline int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char folded = (char)(c | 0x20);
    return folded >= 'a' && folded <= 'f' ? folded - 'a' + 10 : -1;
}

/* The same for lower case only. */
static inline int hex_lower_value(char c) {
    return c >= 'A' && c <= 'F' ? -1 : hex_value(c);
}

/* Decodes `n_bytes` bytes from twice as many lower-case digits. Returns: false when one is no such
 * digit. */
static inline bool hex_decode_lower(const char *text, unsigned char *out, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        int high = hex_lower_value(text[2 * i]), low = hex_lower_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* Writes twice as many lower-case digits to `out`, without a NUL. */
static inline void hex_encode_lower(const unsigned char *bytes, size_t n_bytes, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n_bytes; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

#endif
