/* Scalars of the protobuf text format: strings with their escapes, numbers of every base, words. A
 * word that names a truth or a special number is one; any other is an enum's name, kept as text. */
#include "core/base/doc/pbtxt.h"

#include <math.h>
#include <stdio.h>

#include "core/base/buf.h"
#include "core/base/hex.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

/* Returns: 99 for no digit, which is above every base. */
static int digit_of(char c) {
    int value = hex_value(c);
    return value < 0 ? 99 : value;
}

/* Takes up to `max` digits of `base`. Returns: how many there were. */
static unsigned take_digits(struct pbtxt_reader *reader, int base, unsigned max, uint32_t *out) {
    unsigned n = 0;
    for (*out = 0; n < max && digit_of(pbtxt_peek(reader)) < base; n++) {
        *out = *out * (uint32_t)base + (uint32_t)digit_of(*reader->at++);
    }
    return n;
}

/* ---- strings ("String Literals") ------------------------------------------------------------- */

static void add_utf8(struct buf *out, uint32_t code) {
    if (code < 0x80) {
        buf_add_char(out, (char)code);
    } else if (code < 0x800) {
        buf_add_char(out, (char)(0xc0 | code >> 6));
        buf_add_char(out, (char)(0x80 | (code & 0x3f)));
    } else {
        if (code < 0x10000) {
            buf_add_char(out, (char)(0xe0 | code >> 12));
        } else {
            buf_add_char(out, (char)(0xf0 | code >> 18));
            buf_add_char(out, (char)(0x80 | (code >> 12 & 0x3f)));
        }
        buf_add_char(out, (char)(0x80 | (code >> 6 & 0x3f)));
        buf_add_char(out, (char)(0x80 | (code & 0x3f)));
    }
}

/* Behind "\u" or "\U". A pair of surrogates in two "\u" is one character. */
static enum status read_code_point(struct pbtxt_reader *reader, char letter, struct buf *out) {
    uint32_t code, low;
    unsigned n = letter == 'u' ? 4 : 8;
    if (take_digits(reader, 16, n, &code) != n) {
        return doc_parse_error(reader->source, reader->line,
                               "expected %u hexadecimal digits behind \"\\%c\"", n, letter);
    }
    if (letter == 'u' && code >= 0xd800 && code < 0xdc00 && reader->end - reader->at >= 6 &&
        reader->at[0] == '\\' && reader->at[1] == 'u') {
        reader->at += 2;
        if (take_digits(reader, 16, 4, &low) == 4 && low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return doc_parse_error(reader->source, reader->line, "U+%04X is no character",
                               (unsigned)code);
    }
    add_utf8(out, code);
    return ST_OK;
}

/* Behind the backslash. */
static enum status read_escape(struct pbtxt_reader *reader, struct buf *out) {
    static const char letters[] = "abfnrtv?\\'\"";
    static const char meanings[] = "\a\b\f\n\r\t\v?\\'\"";
    char c = pbtxt_peek(reader);
    uint32_t byte;
    if (c >= '0' && c <= '7') {
        take_digits(reader, 8, 3, &byte);
        if (byte > 255) {
            return doc_parse_error(reader->source, reader->line, "\"\\%o\" is more than a byte",
                                   (unsigned)byte);
        }
        buf_add_char(out, (char)byte);
        return ST_OK;
    }
    const char *at = c != '\0' ? strchr(letters, c) : NULL;
    if (at) {
        reader->at++;
        buf_add_char(out, meanings[at - letters]);
        return ST_OK;
    }
    if (c == 'x' || c == 'X') {
        reader->at++;
        if (take_digits(reader, 16, 2, &byte) == 0) {
            return pbtxt_syntax_error(reader, "hexadecimal digits behind \"\\x\"");
        }
        buf_add_char(out, (char)byte);
        return ST_OK;
    }
    if (c == 'u' || c == 'U') {
        reader->at++;
        return read_code_point(reader, c, out);
    }
    return pbtxt_syntax_error(reader,
                              "an escape (one of abfnrtv?\\'\", octal digits, x, u or U) behind "
                              "\"\\\"");
}

/* At a quote; adds what is inside. */
static enum status read_quoted(struct pbtxt_reader *reader, struct buf *out) {
    char quote = *reader->at++;
    enum status status = ST_OK;
    while (status == ST_OK) {
        char c = pbtxt_peek(reader);
        if (reader->at == reader->end || c == '\n') {
            return doc_parse_error(reader->source, reader->line,
                                   "expected %c to end the string before the end of the line",
                                   quote);
        }
        if (c == '\0') {
            return doc_parse_error(reader->source, reader->line,
                                   "a string with a NUL (write \"\\0\")");
        }
        reader->at++;
        if (c == quote) {
            return ST_OK;
        }
        if (c == '\\') {
            status = read_escape(reader, out);
        } else {
            buf_add_char(out, c);
        }
    }
    return status;
}

static enum status read_string(struct pbtxt_reader *reader, struct doc_value *value) {
    struct buf text;
    buf_init(&text, reader->source->arena, 0);
    while (pbtxt_peek(reader) == '"' || pbtxt_peek(reader) == '\'') {
        enum status status = read_quoted(reader, &text);
        if (status != ST_OK) {
            return status;
        }
        pbtxt_skip(reader);
    }
    if (text.failed) {
        return doc_no_memory(reader->source);
    }
    if (!utf8_is_valid(text.data, text.len)) {
        return doc_parse_error(reader->source, value->line,
                               "expected a string of UTF-8 text; its escapes "
                               "make something else");
    }
    value->kind = DOC_STR;
    value->text = buf_str(&text);
    return ST_OK;
}

/* ---- numbers ("Numeric Literals") ------------------------------------------------------------ */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Everything that could belong to a number, so that "12abc" is one wrong number. */
static struct str take_number(struct pbtxt_reader *reader) {
    const char *start = reader->at;
    bool hex = reader->end - start > 1 && start[0] == '0' && (start[1] | 0x20) == 'x';
    for (; reader->at < reader->end; reader->at++) {
        char c = *reader->at;
        bool word = is_digit(c) || c == '.' || c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        bool sign =
            !hex && (c == '-' || c == '+') && reader->at > start && (reader->at[-1] | 0x20) == 'e';
        if (!word && !sign) {
            break;
        }
    }
    return str_make(start, (size_t)(reader->at - start));
}

/* Whole numbers in octal ("017") and hexadecimal ("0x1F"), all of `text`. */
static bool parse_based(struct str text, int base, size_t skip, uint64_t *out) {
    uint64_t value = 0;
    for (size_t i = skip; i < text.len; i++) {
        if (digit_of(text.ptr[i]) >= base ||
            __builtin_mul_overflow(value, (uint64_t)base, &value)) {
            return false;
        }
        value += (uint64_t)digit_of(text.ptr[i]);
    }
    *out = value;
    return text.len > skip;
}

static bool parse_whole(struct str text, uint64_t *out) {
    if (text.len > 1 && text.ptr[0] == '0' && (text.ptr[1] | 0x20) == 'x') {
        return parse_based(text, 16, 2, out);
    }
    if (text.len > 1 && text.ptr[0] == '0') {
        return parse_based(text, 8, 1, out);
    }
    return num_parse_u64(text, out);
}

static bool parse_real(struct str text, double *out) {
    if (text.len > 1 && text.ptr[0] == '0' &&
        (is_digit(text.ptr[1]) || (text.ptr[1] | 0x20) == 'x')) {
        return false; /* octal or hexadecimal, and wrong */
    }
    if ((text.ptr[text.len - 1] | 0x20) == 'f') {
        text.len--;
    }
    return num_parse_decimal(text, out);
}

static enum status read_number(struct pbtxt_reader *reader, bool negative,
                               struct doc_value *value) {
    struct str text = take_number(reader);
    uint64_t whole;
    double real;
    if (parse_whole(text, &whole) && (!negative || whole <= UINT64_C(1) << 63)) {
        value->kind = negative && whole > 0 ? DOC_SINT : DOC_UINT;
        if (value->kind == DOC_SINT) {
            value->sint = (int64_t)(0 - whole);
        } else {
            value->uint = whole;
        }
        return ST_OK;
    }
    if (!parse_real(text, &real)) {
        int cut = text.len > 60 ? 60 : (int)text.len;
        return doc_parse_error(reader->source, value->line, "expected a number, got \"%.*s\"", cut,
                               text.ptr);
    }
    value->kind = DOC_REAL;
    value->real = negative ? -real : real;
    return ST_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

static enum status read_word(struct pbtxt_reader *reader, bool negative, struct doc_value *value) {
    const char *start = reader->at;
    struct str word = pbtxt_take_ident(reader);
    bool yes = str_is(word, "true") || str_is(word, "True") || str_is(word, "t");
    bool no = str_is(word, "false") || str_is(word, "False") || str_is(word, "f");
    bool infinite = str_eq_nocase(word, STR("inf")) || str_eq_nocase(word, STR("infinity"));
    if (infinite || str_eq_nocase(word, STR("nan"))) {
        double real = infinite ? (double)INFINITY : (double)NAN;
        value->kind = DOC_REAL;
        value->real = negative ? -real : real;
    } else if (negative) {
        reader->at = start;
        return pbtxt_syntax_error(reader, "a number behind \"-\"");
    } else if (yes || no) {
        value->kind = DOC_BOOL;
        value->boolean = yes;
    } else if (word.len > 0) {
        value->kind = DOC_STR;
        value->text = word;
    } else {
        return pbtxt_syntax_error(reader, "a value");
    }
    return ST_OK;
}

enum status pbtxt_read_scalar(struct pbtxt_reader *reader, struct doc_value **out) {
    struct doc_value *value = doc_value_new(reader->source->arena, DOC_NULL, reader->line);
    bool negative = pbtxt_peek(reader) == '-';
    if (!value) {
        return doc_no_memory(reader->source);
    }
    *out = value;
    if (negative) {
        reader->at++;
        pbtxt_skip(reader);
    }
    char c = pbtxt_peek(reader);
    if (!negative && (c == '"' || c == '\'')) {
        return read_string(reader, value);
    }
    return is_digit(c) || c == '.' ? read_number(reader, negative, value)
                                   : read_word(reader, negative, value);
}
