/* Skips a value of a JSON text that arrives in chunks, which may be cut anywhere: a string up to
 * its closing quote, an object or array up to its last bracket. Of nested values only brackets are
 * counted, so that depth and size take no memory. The grammar is not checked. */
#ifndef SLUICE_CODEC_JSON_SKIP_H
#define SLUICE_CODEC_JSON_SKIP_H

#include <stdbool.h>
#include <stdint.h>

struct json_skip {
    uint64_t depth; /* open brackets; 0: the value is a string */
    bool in_string;
    bool escaped; /* in a string: the next byte is */
};

/* Starts after the first byte of a value: a quote or an opening bracket. */
static inline void json_skip_init(struct json_skip *skip, char first) {
    bool is_string = first == '"';
    *skip = (struct json_skip){.depth = is_string ? 0 : 1, .in_string = is_string};
}

/* Skips the next bytes. Returns: the position after the value, or NULL when the value does not end
 * in this chunk. */
const char *json_skip_feed(struct json_skip *skip, const char *at, const char *end);

static inline bool json_is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Is it a character of a number, true, false or null? */
static inline bool json_is_literal_char(char c) {
    char folded = (char)(c | 0x20);
    return (c >= '0' && c <= '9') || (folded >= 'a' && folded <= 'z') || c == '-' || c == '+' ||
           c == '.';
}

#endif
