/* Strings are looked through for quotes, all else for brackets and quotes, sixteen bytes at
 * once. */
#include "codec/json/jump.h"

#include <string.h>

#include "core/base/lanes.h"

/* To behind a string's end. A quote is escaped where an odd number of backslashes is before it;
 * `escaped` is that of a run at the end of the last chunk. Returns: NULL where it has no end
 * here. */
static const char *over_string(struct json_jump *jump, const char *at, const char *end) {
    while (at < end) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        const char *stop = quote ? quote : end, *run = stop;
        while (run > at && run[-1] == '\\') {
            run--;
        }
        bool odd = ((stop - run) & 1) != 0;
        bool escaped = run == at && jump->escaped ? !odd : odd;
        if (!quote) {
            jump->escaped = escaped;
            return NULL;
        }
        jump->escaped = false;
        at = quote + 1;
        if (!escaped) {
            return at;
        }
    }
    return NULL;
}

/* The next bracket or quote, or `end`. */
static const char *find_bracket(const char *at, const char *end) {
    for (; end - at >= LANES; at += LANES) {
        lanes_bytes bytes;
        memcpy(&bytes, at, LANES);
        lanes_bytes folded = bytes | 0x20; /* brackets become braces */
        unsigned found = lanes_bits((folded == '{') | (folded == '}') | (bytes == '"'));
        if (found != 0) {
            return at + __builtin_ctz(found);
        }
    }
    while (at < end && *at != '"' && (*at | 0x20) != '{' && (*at | 0x20) != '}') {
        at++;
    }
    return at;
}

const char *json_jump_over(struct json_jump *jump, const char *at, const char *end) {
    while (at < end) {
        if (jump->in_string) {
            at = over_string(jump, at, end);
            if (!at) {
                return NULL;
            }
            jump->in_string = false;
        } else {
            at = find_bracket(at, end);
            if (at == end) {
                return NULL;
            }
            char c = *at++;
            jump->in_string = c == '"';
            jump->depth += c == '{' || c == '[';
            jump->depth -= c == '}' || c == ']';
        }
        if (jump->depth == 0 && !jump->in_string) {
            return at;
        }
    }
    return NULL;
}
