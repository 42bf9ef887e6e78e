/* Groups of four letters, each of three bytes. */
#include "core/base/base64.h"

#include <string.h>

static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_print(struct buf *out, struct str bytes) {
    for (size_t i = 0; i < bytes.len; i += 3) {
        uint32_t group = 0;
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        for (size_t j = 0; j < 3; j++) {
            group = group << 8 | (j < n ? (unsigned char)bytes.ptr[i + j] : 0);
        }
        for (size_t j = 0; j <= n; j++) {
            buf_add_char(out, LETTERS[group >> (18 - 6 * j) & 63]);
        }
    }
}

static int letter_value(char c) {
    const char *at = c ? strchr(LETTERS, c) : NULL;
    return at ? (int)(at - LETTERS) : -1;
}

static struct str without_padding(struct str text) {
    if (text.len > 0 && text.len % 4 == 0 && text.ptr[text.len - 1] == '=') {
        text.len -= text.ptr[text.len - 2] == '=' ? 2 : 1;
    }
    return text;
}

bool base64_is_valid(struct str text) {
    text = without_padding(text);
    bool valid = text.len % 4 != 1;
    for (size_t i = 0; valid && i < text.len; i++) {
        valid = letter_value(text.ptr[i]) >= 0;
    }
    return valid;
}

/* `bytes` has room for all. Returns: false at a letter that is none, which is `*bad`. */
static bool decode(struct str text, char *bytes, struct str *out, size_t *bad) {
    uint32_t group = 0;
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        int value = letter_value(text.ptr[i]);
        if (value < 0 || text.len % 4 == 1) {
            *bad = i;
            return false;
        }
        group = group << 6 | (uint32_t)value;
        if (i % 4 > 0) { /* the second letter completes the first byte, and so on */
            bytes[n++] = (char)(group >> (6 - 2 * (i % 4)));
        }
    }
    *out = str_make(bytes, n);
    return true;
}

enum status base64_parse(struct arena *arena, struct str text, struct str *out, size_t *bad) {
    text = without_padding(text);
    char *bytes = arena_alloc(arena, text.len / 4 * 3 + 3);
    if (!bytes) {
        return ST_NO_MEMORY;
    }
    return decode(text, bytes, out, bad) ? ST_OK : ST_BAD_REQUEST;
}

bool base64_decode(struct str text, char *bytes, struct str *out) {
    size_t bad;
    return decode(without_padding(text), bytes, out, &bad);
}
