/* JSON string decoding, one byte at a time: escapes and plain bytes. */
#include "codec/prompt/json_string_decoder.h"

#include <string.h>

#include "core/base/hex.h"

enum { ESCAPE_DIGITS = 4, ESCAPE_LETTER = 5 };

static enum json_string_event decode_error(struct json_string_decoder *text, const char *why) {
    text->error_text = why;
    return JSON_STRING_INVALID;
}

static enum json_string_event put_byte(struct json_string_decoder *text, char c) {
    text->out[text->n_out++] = c;
    return JSON_STRING_BYTES;
}

/* A continuation byte with the low six bits of `code`. */
static char utf8_tail_byte(uint32_t code) {
    return (char)(0x80 | (code & 0x3f));
}

static enum json_string_event put_code(struct json_string_decoder *text, uint32_t code) {
    if (code < 0x80) {
        return put_byte(text, (char)code);
    }
    if (code < 0x800) {
        put_byte(text, (char)(0xc0 | code >> 6));
    } else if (code < 0x10000) {
        put_byte(text, (char)(0xe0 | code >> 12));
        put_byte(text, utf8_tail_byte(code >> 6));
    } else {
        put_byte(text, (char)(0xf0 | code >> 18));
        put_byte(text, utf8_tail_byte(code >> 12));
        put_byte(text, utf8_tail_byte(code >> 6));
    }
    return put_byte(text, utf8_tail_byte(code));
}

/* A character above U+FFFF is a pair of escapes. */
static enum json_string_event end_code(struct json_string_decoder *text, uint32_t code) {
    bool is_high = code >= 0xd800 && code < 0xdc00, is_low = code >= 0xdc00 && code < 0xe000;
    if (is_low != (text->high != 0)) {
        return decode_error(text, "half of a surrogate pair is missing");
    }
    if (is_high) {
        text->high = code;
        return JSON_STRING_BYTES;
    }
    uint32_t pair = 0x10000 + ((text->high & 0x3ff) << 10 | (code & 0x3ff));
    text->high = 0;
    return put_code(text, is_low ? pair : code);
}

static enum json_string_event decode_digit(struct json_string_decoder *text, char c) {
    int digit = hex_value(c);
    if (digit < 0) {
        return decode_error(text, "an escape has not four hexadecimal digits");
    }
    text->code = text->code << 4 | (uint32_t)digit;
    text->escape--;
    return text->escape == 0 ? end_code(text, text->code) : JSON_STRING_BYTES;
}

static enum json_string_event decode_letter(struct json_string_decoder *text, char c) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter = memchr(letters, c, sizeof(letters) - 1);
    text->escape = c == 'u' ? ESCAPE_DIGITS : 0;
    text->code = 0;
    if (c == 'u') {
        return JSON_STRING_BYTES;
    }
    return letter ? end_code(text, (uint32_t)meanings[letter - letters])
                  : decode_error(text, "an escape that JSON does not have");
}

enum json_string_event json_string_decoder_feed(struct json_string_decoder *text, char c) {
    text->n_out = 0;
    if (text->escape != 0) {
        return text->escape == ESCAPE_LETTER ? decode_letter(text, c) : decode_digit(text, c);
    }
    if (c == '\\') {
        text->escape = ESCAPE_LETTER;
        return JSON_STRING_BYTES;
    }
    if (text->high != 0) {
        return decode_error(text, "half of a surrogate pair is missing");
    }
    if ((unsigned char)c < 0x20) {
        return decode_error(text, "a control character in a string");
    }
    return c == '"' ? JSON_STRING_END : put_byte(text, c);
}
