/* Strict UTF-8, validated and written: no overlong forms, no surrogates, no code point above
 * U+10FFFF. */
#ifndef SLUICE_CORE_BASE_UTF8_H
#define SLUICE_CORE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns: the length (1 to 4) of the character at the front of `data`; 0 when there is none or it
 * is not well formed within `n_bytes`. */
size_t utf8_char_len(const void *data, size_t n_bytes);
enum { UTF8_MAX_BYTES = 4 };
/* Writes the character of `code`, at most U+10FFFF and no surrogate. Returns: its length. */
size_t utf8_encode(uint32_t code, char out[UTF8_MAX_BYTES]);
/* Returns: whether the character of `n_bytes` is a control character: C0, DEL, or C1, which
 * terminals obey too, and which UTF-8 writes as C2 80 to C2 9F. */
static inline bool utf8_is_control(const void *character, size_t n_bytes) {
    const unsigned char *p = character;
    return (n_bytes == 1 && (p[0] < 0x20 || p[0] == 0x7f)) ||
           (n_bytes == 2 && p[0] == 0xc2 && p[1] < 0xa0);
}
/* Returns: `n_bytes` when all of it is valid, else the offset of the first byte that is not. */
size_t utf8_valid_prefix(const void *data, size_t n_bytes);
/* Returns: whether all bytes are below 128, as in most names. The last two words read overlap. */
static inline bool utf8_is_ascii(const void *data, size_t n_bytes) {
    const unsigned char *p = data;
    uint64_t word, seen = 0;
    uint32_t half, other_half;
    if (n_bytes >= sizeof word) {
        for (size_t at = 0; at < n_bytes - sizeof word; at += sizeof word) {
            memcpy(&word, p + at, sizeof word);
            seen |= word;
        }
        memcpy(&word, p + n_bytes - sizeof word, sizeof word);
        seen |= word;
    } else if (n_bytes >= sizeof half) {
        memcpy(&half, p, sizeof half);
        memcpy(&other_half, p + n_bytes - sizeof half, sizeof half);
        seen = half | other_half;
    } else {
        for (size_t at = 0; at < n_bytes; at++) {
            seen |= p[at];
        }
    }
    return (seen & 0x8080808080808080u) == 0;
}
static inline bool utf8_is_valid(const void *data, size_t n_bytes) {
    return utf8_is_ascii(data, n_bytes) || utf8_valid_prefix(data, n_bytes) == n_bytes;
}

#endif
