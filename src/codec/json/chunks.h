/* Parts of a JSON text that arrives in chunks, which may be cut anywhere: skipping a value, and
 * decoding a string. */
#ifndef SLUICE_CODEC_JSON_CHUNKS_H
#define SLUICE_CODEC_JSON_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/utf8.h"

/* Skips a value: a string up to its closing quote, an object or array up to its last bracket. Of
 * nested values only brackets are counted, so that depth and size take no memory. The grammar is
 * not checked. */
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

/* Decodes a string's content, byte by byte: escapes become UTF-8. (RFC 8259, 7) */
enum json_string_event {
    JSON_STRING_BYTES,   /* n_out bytes, possibly none */
    JSON_STRING_END,     /* the closing quote */
    JSON_STRING_INVALID, /* see `error_text` */
};

/* Zeroed before each string. */
struct json_string_decoder {
    uint32_t code;  /* of an escape, as far as its digits are read */
    uint32_t high;  /* the first half of a surrogate pair; 0: none */
    uint8_t escape; /* expected next: 0 no escape, 1 to 4 that many hexadecimal digits, 5 the letter
                       of an escape */
    uint8_t n_out;
    char out[UTF8_MAX_BYTES];
    const char *error_text;
};

/* Decodes the next byte after the opening quote. Bytes above ASCII are copied: the caller checks
 * that the whole is UTF-8. */
enum json_string_event json_string_decoder_feed(struct json_string_decoder *text, char c);

/* Returns: the next quote, backslash or control character, or `end`: bytes before it stand for
 * themselves. */
const char *json_string_find_special(const char *at, const char *end);

enum { JSON_RUN_SLACK = 32 };

/* Decodes many bytes at once, where no escape has begun: up to what json_string_decoder_feed must
 * see, which is the closing quote, an error, half of a surrogate pair, or an escape that `end`
 * cuts. `out` has room for end - at bytes and JSON_RUN_SLACK more. Returns: where it stopped;
 * *n_out: the bytes decoded. */
const char *json_string_decode_run(const char *at, const char *end, char *out, size_t *n_out);

#endif
