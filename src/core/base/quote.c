/* A name is cut where it would not fit, between characters of UTF-8. */
#include "core/base/quote.h"

#include <string.h>

const char *quote_name(struct str name, char out[QUOTED_NAME_BYTES]) {
    static const char cut[] = "…\"";
    size_t capacity = QUOTED_NAME_BYTES - 1 - sizeof(cut);
    size_t len = name.len;
    if (len > capacity) { /* cut between characters, if it is text */
        for (len = capacity; len > capacity - 3 && ((unsigned char)name.ptr[len] & 0xc0) == 0x80;
             len--) {
        }
    }
    out[0] = '"';
    for (size_t i = 0; i < len; i++) {
        out[1 + i] = name.ptr[i] != '\0' ? name.ptr[i] : '?';
    }
    if (len < name.len) {
        memcpy(out + 1 + len, cut, sizeof(cut));
    } else {
        memcpy(out + 1 + len, "\"", 2);
    }
    return out;
}
