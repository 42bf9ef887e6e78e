/* A name is cut where it would not fit, between characters of UTF-8. */
#include "core/base/quote.h"

#include <string.h>

static const char *quote(struct str name, char mark, char out[QUOTED_NAME_BYTES]) {
    static const char cut[] = "…";
    size_t capacity = QUOTED_NAME_BYTES - 2 - sizeof(cut);
    size_t len = name.len;
    if (len > capacity) { /* cut between characters, if it is text */
        for (len = capacity; len > capacity - 3 && ((unsigned char)name.ptr[len] & 0xc0) == 0x80;
             len--) {
        }
    }
    out[0] = mark;
    for (size_t i = 0; i < len; i++) {
        out[1 + i] = name.ptr[i] != '\0' ? name.ptr[i] : '?';
    }
    size_t n = 1 + len;
    if (len < name.len) {
        memcpy(out + n, cut, strlen(cut));
        n += strlen(cut);
    }
    out[n] = mark;
    out[n + 1] = '\0';
    return out;
}

const char *quote_name(struct str name, char out[QUOTED_NAME_BYTES]) {
    return quote(name, '"', out);
}

const char *quote_name_single(struct str name, char out[QUOTED_NAME_BYTES]) {
    return quote(name, '\'', out);
}
