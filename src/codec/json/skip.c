/* Searches strings for quotes, and all else for brackets and quotes, sixteen bytes at once. */
#include "codec/json/skip.h"

#include <string.h>

#include "core/base/simd.h"

/* Skips the rest of a string. A quote is escaped when an odd number of backslashes precedes it;
 * `escaped` carries that over from the last chunk. Returns: after the closing quote; NULL when the
 * string does not end in this chunk. */
static const char *skip_string(struct json_skip *skip, const char *at, const char *end) {
    while (at < end) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        const char *stop = quote ? quote : end, *run = stop;
        while (run > at && run[-1] == '\\') {
            run--;
        }
        bool odd = ((stop - run) & 1) != 0;
        bool escaped = run == at && skip->escaped ? !odd : odd;
        if (!quote) {
            skip->escaped = escaped;
            return NULL;
        }
        skip->escaped = false;
        at = quote + 1;
        if (!escaped) {
            return at;
        }
    }
    return NULL;
}

/* Returns: the next bracket or quote, or `end`. */
static const char *find_bracket(const char *at, const char *end) {
    for (; end - at >= SIMD_LANES; at += SIMD_LANES) {
        simd_i8x16 bytes;
        memcpy(&bytes, at, SIMD_LANES);
        simd_i8x16 folded = bytes | 0x20; /* brackets become braces */
        unsigned found = simd_mask((folded == '{') | (folded == '}') | (bytes == '"'));
        if (found != 0) {
            return at + __builtin_ctz(found);
        }
    }
    while (at < end && *at != '"' && (*at | 0x20) != '{' && (*at | 0x20) != '}') {
        at++;
    }
    return at;
}

const char *json_skip_feed(struct json_skip *skip, const char *at, const char *end) {
    while (at < end) {
        if (skip->in_string) {
            at = skip_string(skip, at, end);
            if (!at) {
                return NULL;
            }
            skip->in_string = false;
        } else {
            at = find_bracket(at, end);
            if (at == end) {
                return NULL;
            }
            char c = *at++;
            skip->in_string = c == '"';
            skip->depth += c == '{' || c == '[';
            skip->depth -= c == '}' || c == ']';
        }
        if (skip->depth == 0 && !skip->in_string) {
            return at;
        }
    }
    return NULL;
}
