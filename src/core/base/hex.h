/* Hexadecimal digits that others wrote. */
#ifndef SLUICE_CORE_BASE_HEX_H
#define SLUICE_CORE_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* Returns: 0 to 15, of either case; -1: it is no hexadecimal digit. */
static inline int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char folded = (char)(c | 0x20);
    return folded >= 'a' && folded <= 'f' ? folded - 'a' + 10 : -1;
}

/* `n_bytes` from twice as many digits, in lower case. Returns: false: they are not. */
bool hex_decode_lower(const char *text, unsigned char *out, size_t n_bytes);

#endif
