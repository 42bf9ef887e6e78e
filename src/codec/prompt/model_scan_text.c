/* A byte is an escape's, or it is itself. */
#include "codec/prompt/model_scan_text.h"

#include <string.h>

#include "core/base/hex.h"

enum { ESCAPE_DIGITS = 4, ESCAPE_LETTER = 5 };

static enum model_scan_text_event wrong(struct model_scan_text *text, const char *why) {
    text->broken = why;
    return MODEL_SCAN_TEXT_WRONG;
}

static enum model_scan_text_event put(struct model_scan_text *text, char c) {
    text->out[text->n_out++] = c;
    return MODEL_SCAN_TEXT_BYTES;
}

/* The last six bits of what is left of a character. */
static char tail(uint32_t code) {
    return (char)(0x80 | (code & 0x3f));
}

static enum model_scan_text_event put_code(struct model_scan_text *text, uint32_t code) {
    if (code < 0x80) {
        return put(text, (char)code);
    }
    if (code < 0x800) {
        put(text, (char)(0xc0 | code >> 6));
    } else if (code < 0x10000) {
        put(text, (char)(0xe0 | code >> 12));
        put(text, tail(code >> 6));
    } else {
        put(text, (char)(0xf0 | code >> 18));
        put(text, tail(code >> 12));
        put(text, tail(code >> 6));
    }
    return put(text, tail(code));
}

/* A character above U+FFFF is two escapes, one behind the other. */
static enum model_scan_text_event take_code(struct model_scan_text *text, uint32_t code) {
    bool is_high = code >= 0xd800 && code < 0xdc00, is_low = code >= 0xdc00 && code < 0xe000;
    if (is_low != (text->high != 0)) {
        return wrong(text, "half of a surrogate pair is missing");
    }
    if (is_high) {
        text->high = code;
        return MODEL_SCAN_TEXT_BYTES;
    }
    uint32_t pair = 0x10000 + ((text->high & 0x3ff) << 10 | (code & 0x3ff));
    text->high = 0;
    return put_code(text, is_low ? pair : code);
}

static enum model_scan_text_event take_digit(struct model_scan_text *text, char c) {
    int digit = hex_value(c);
    if (digit < 0) {
        return wrong(text, "an escape has not four hexadecimal digits");
    }
    text->code = text->code << 4 | (uint32_t)digit;
    text->escape--;
    return text->escape == 0 ? take_code(text, text->code) : MODEL_SCAN_TEXT_BYTES;
}

static enum model_scan_text_event take_letter(struct model_scan_text *text, char c) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter = memchr(letters, c, sizeof(letters) - 1);
    text->escape = c == 'u' ? ESCAPE_DIGITS : 0;
    text->code = 0;
    if (c == 'u') {
        return MODEL_SCAN_TEXT_BYTES;
    }
    return letter ? take_code(text, (uint32_t)meanings[letter - letters])
                  : wrong(text, "an escape that JSON does not have");
}

enum model_scan_text_event model_scan_text_take(struct model_scan_text *text, char c) {
    text->n_out = 0;
    if (text->escape != 0) {
        return text->escape == ESCAPE_LETTER ? take_letter(text, c) : take_digit(text, c);
    }
    if (c == '\\') {
        text->escape = ESCAPE_LETTER;
        return MODEL_SCAN_TEXT_BYTES;
    }
    if (text->high != 0) {
        return wrong(text, "half of a surrogate pair is missing");
    }
    if ((unsigned char)c < 0x20) {
        return wrong(text, "a control character in a string");
    }
    return c == '"' ? MODEL_SCAN_TEXT_END : put(text, c);
}
