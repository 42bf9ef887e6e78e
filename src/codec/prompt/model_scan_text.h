/* The inside of a JSON string that comes byte by byte: escapes become UTF-8. For the scans of
 * bodies only.
 *
 * RFC 8259, 7. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_SCAN_TEXT_H
#define SLUICE_CODEC_PROMPT_MODEL_SCAN_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum model_scan_text_event {
    MODEL_SCAN_TEXT_BYTES, /* n_out of them, perhaps none */
    MODEL_SCAN_TEXT_END,   /* the quote behind it */
    MODEL_SCAN_TEXT_WRONG, /* `broken` says why */
};

/* All zero where a string begins. */
struct model_scan_text {
    uint32_t code;  /* of an escape, while its digits come */
    uint32_t high;  /* the first half of a surrogate pair; 0: none */
    uint8_t escape; /* what is to come of an escape: 0 nothing, 1 to 4 digits, 5 its letter */
    uint8_t n_out;
    char out[4];
    const char *broken;
};

/* Takes the next byte behind the opening quote. Bytes above ASCII pass as they are: whether the
 * whole is UTF-8 is the caller's to look at. */
enum model_scan_text_event model_scan_text_take(struct model_scan_text *text, char c);

#endif
