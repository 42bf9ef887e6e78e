/* Incremental decoder of a JSON string's content, byte by byte: escapes become UTF-8. For the
 * body scans (model_scan.h, prompt_scan.h).
 *
 * RFC 8259, 7. */
#ifndef SLUICE_CODEC_PROMPT_JSON_STRING_DECODER_H
#define SLUICE_CODEC_PROMPT_JSON_STRING_DECODER_H

#include <stdbool.h>
#include <stdint.h>

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
    char out[4];
    const char *error_text;
};

/* Decodes the next byte after the opening quote. Bytes above ASCII are copied: the caller checks
 * that the whole is UTF-8. */
enum json_string_event json_string_decoder_feed(struct json_string_decoder *text, char c);

#endif
