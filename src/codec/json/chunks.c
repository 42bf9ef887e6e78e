/* Skipping searches strings for quotes, and all else for brackets and quotes, sixteen bytes at
 * once. Decoding takes one byte at a time, or a run: sixteen or 32 bytes are copied, of which
 * those before the first special one count. */
#include "codec/json/chunks.h"

#include <string.h>

#include "core/base/hex.h"
#include "core/base/simd.h"

/* ---- skipping a value ------------------------------------------------------------------------ */

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

/* ---- decoding a string ----------------------------------------------------------------------- */

enum { ESCAPE_DIGITS = 4, ESCAPE_LETTER = 5 };

static enum json_string_event decode_error(struct json_string_decoder *text, const char *why) {
    text->error_text = why;
    return JSON_STRING_INVALID;
}

static enum json_string_event put_byte(struct json_string_decoder *text, char c) {
    text->out[text->n_out++] = c;
    return JSON_STRING_BYTES;
}

static enum json_string_event put_code(struct json_string_decoder *text, uint32_t code) {
    if (code < 0x80) { /* most: quotes and line breaks */
        return put_byte(text, (char)code);
    }
    text->n_out = (uint8_t)utf8_encode(code, text->out);
    return JSON_STRING_BYTES;
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

/* ---- special bytes --------------------------------------------------------------------------- */

/* The lanes that are quotes, backslashes or control characters: with its highest bit changed a byte
 * is in the order of signed ones. */
#define SPECIAL_LANES(bytes)                                                                       \
    (((bytes) == '"') | ((bytes) == '\\') | (((bytes) ^ INT8_MIN) < (signed char)(0x20 + INT8_MIN)))

static bool is_special(char c) {
    return c == '"' || c == '\\' || (unsigned char)c < 0x20;
}

static simd_i8x16 special_lanes(const char *at) {
    simd_i8x16 bytes;
    memcpy(&bytes, at, SIMD_LANES);
    return SPECIAL_LANES(bytes);
}

const char *json_string_find_special(const char *at, const char *end) {
    enum { PAIR = 2 * SIMD_LANES, ALL = 2 * PAIR };
    for (; end - at >= ALL; at += ALL) {
        if (simd_any((special_lanes(at) | special_lanes(at + SIMD_LANES)) |
                     (special_lanes(at + PAIR) | special_lanes(at + PAIR + SIMD_LANES)))) {
            break;
        }
    }
    for (; end - at >= SIMD_LANES; at += SIMD_LANES) {
        unsigned found = simd_mask(special_lanes(at));
        if (found != 0) {
            return at + __builtin_ctz(found);
        }
    }
    while (at < end && !is_special(*at)) {
        at++;
    }
    return at;
}

/* ---- decoding a run -------------------------------------------------------------------------- */

/* Copies up to the first special byte; what it writes after that does not count. Returns: that
 * byte, or `end`. */
typedef const char *copy_plain_fn(const char *at, const char *end, char *out);

static const char *copy_plain(const char *at, const char *end, char *out) {
    for (; end - at >= SIMD_LANES; at += SIMD_LANES, out += SIMD_LANES) {
        simd_i8x16 bytes;
        memcpy(&bytes, at, SIMD_LANES);
        memcpy(out, &bytes, SIMD_LANES);
        unsigned special = simd_mask(SPECIAL_LANES(bytes));
        if (special != 0) {
            return at + __builtin_ctz(special);
        }
    }
    for (; at < end && !is_special(*at); at++) {
        *out++ = *at;
    }
    return at;
}

#ifdef SIMD_WIDE
SIMD_WIDE static const char *copy_plain_wide(const char *at, const char *end, char *out) {
    for (; end - at >= SIMD_WIDE_LANES; at += SIMD_WIDE_LANES, out += SIMD_WIDE_LANES) {
        simd_i8x32 bytes;
        memcpy(&bytes, at, SIMD_WIDE_LANES);
        memcpy(out, &bytes, SIMD_WIDE_LANES);
        unsigned special = simd_wide_mask(SPECIAL_LANES(bytes));
        if (special != 0) {
            return at + __builtin_ctz(special);
        }
    }
    return copy_plain(at, end, out);
}
#endif

/* The character of four hexadecimal digits. Returns: UINT32_MAX: half of a surrogate pair, or no
 * digits. */
static uint32_t read_code(const char *digits) {
    uint32_t code = 0;
    for (int i = 0; i < ESCAPE_DIGITS; i++) {
        int digit = hex_value(digits[i]);
        if (digit < 0) {
            return UINT32_MAX;
        }
        code = code << 4 | (uint32_t)digit;
    }
    return code >= 0xd800 && code < 0xe000 ? UINT32_MAX : code;
}

/* Decodes an escape of `n_bytes` or fewer. Returns: its bytes; 0: it is left to
 * json_string_decoder_feed. */
static inline size_t decode_escape(const char *at, size_t n_bytes, char *out, size_t *n_out) {
    static const char meanings[128] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                       ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};
    enum { SHORT = 2, LONG = SHORT + ESCAPE_DIGITS };
    char letter = n_bytes >= SHORT ? at[1] : '\0';
    if (letter != 'u') {
        *out = meanings[letter & 0x7f];
        *n_out = 1;
        return letter >= 0 && *out != '\0' ? SHORT : 0;
    }
    uint32_t code = n_bytes >= LONG ? read_code(at + SHORT) : UINT32_MAX;
    if (code == UINT32_MAX) {
        return 0;
    }
    *n_out = utf8_encode(code, out);
    return LONG;
}

/* With one of the functions to copy, which is then a part of it. */
static inline __attribute__((always_inline)) const char *decode_run_with(copy_plain_fn *copy,
                                                                         const char *at,
                                                                         const char *end, char *out,
                                                                         size_t *n_out) {
    char *begin = out;
    for (;;) {
        const char *special = copy(at, end, out);
        out += special - at;
        at = special;
        if (at == end || *at != '\\') {
            break;
        }
        size_t n_decoded, n_escape = decode_escape(at, (size_t)(end - at), out, &n_decoded);
        if (n_escape == 0) {
            break;
        }
        at += n_escape;
        out += n_decoded;
    }
    *n_out = (size_t)(out - begin);
    return at;
}

#ifdef SIMD_WIDE
SIMD_WIDE static const char *decode_run_wide(const char *at, const char *end, char *out,
                                             size_t *n_out) {
    return decode_run_with(copy_plain_wide, at, end, out, n_out);
}
#endif

const char *json_string_decode_run(const char *at, const char *end, char *out, size_t *n_out) {
#ifdef SIMD_WIDE
    if (simd_has_wide()) {
        return decode_run_wide(at, end, out, n_out);
    }
#endif
    return decode_run_with(copy_plain, at, end, out, n_out);
}
