/* The inside of a JSON string that comes byte by byte: escapes become UTF-8. For the scans of
 * bodies only.
 *
 * RFC 8259, 7. */
#ifndef SLUICE_CODEC_PROMPT_JSON_STRING_DECODER_H
#define SLUICE_CODEC_PROMPT_JSON_STRING_DECODER_H

#include <stdbool.h>
#include <stdint.h>

enum json_string_event {
    JSON_STRING_BYTES,   /* n_out of them, perhaps none */
    JSON_STRING_END,     /* the quote behind it */
    JSON_STRING_INVALID, /* `broken` says why */
};

/* All zero where a string begins. */
struct json_string_decoder {
    uint32_t code;  /* of an escape, while its digits come */
    uint32_t high;  /* the first half of a surrogate pair; 0: none */
    uint8_t escape; /* what is to come of an escape: 0 nothing, 1 to 4 digits, 5 its letter */
    uint8_t n_out;
    char out[4];
    const char *error_text;
};

/* Takes the next byte behind the opening quote. Bytes above ASCII pass as they are: whether the
 * whole is UTF-8 is the caller's to look at. */
enum json_string_event json_string_decoder_feed(struct json_string_decoder *text, char c);

#endif
