/* Bytes from their digits. */
#include "core/base/hex.h"

static int lower_value(char c) {
    return c >= 'A' && c <= 'F' ? -1 : hex_value(c);
}

bool hex_decode_lower(const char *text, unsigned char *out, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        int high = lower_value(text[2 * i]), low = lower_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}
