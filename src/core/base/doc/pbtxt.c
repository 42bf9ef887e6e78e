/* Parser of the protobuf text format without a schema, as config.pbtxt has it: messages, fields and
 * lists. A field that is given several times, or as a list, becomes an array. What needs a schema
 * (extensions, Any, fields by number) is an error. A word that names a boolean or a special number
 * becomes one; any other is an enum's name and stays text. Clauses are sections of protobuf's "Text
 * Format Language Specification". */
#include "core/base/doc/build.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/buf.h"
#include "core/base/hex.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

struct pbtxt_reader {
    const struct doc_source *source;
    const char *at;
    const char *end;
    unsigned line;
    unsigned depth;
};

/* Skips white space and comments ("Whitespace and Comments"). */
static void skip_blanks(struct pbtxt_reader *reader) {
    bool comment = false;
    for (; reader->at < reader->end; reader->at++) {
        char c = *reader->at;
        if (c == '\n') {
            comment = false;
            reader->line++;
        } else if (c == '#') {
            comment = true;
        } else if (!comment && c != ' ' && c != '\t' && c != '\r' && c != '\v' && c != '\f') {
            return;
        }
    }
}

/* The next byte, '\0' at the end of the text. */
static char peek_char(const struct pbtxt_reader *reader) {
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool starts_ident(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Takes an identifier ("Identifiers"). Returns: empty when there is none. */
static struct str take_ident(struct pbtxt_reader *reader) {
    const char *start = reader->at;
    while (starts_ident(peek_char(reader)) ||
           (reader->at > start && peek_char(reader) >= '0' && peek_char(reader) <= '9')) {
        reader->at++;
    }
    return str_make(start, (size_t)(reader->at - start));
}

/* Reports the character or word at the reader. Returns: ST_BAD_CONFIG with "expected WHAT, got
 * …". */
static enum status syntax_error(const struct pbtxt_reader *reader, const char *what) {
    size_t left = (size_t)(reader->end - reader->at);
    if (left == 0) {
        return doc_parse_error(reader->source, reader->line, "expected %s, got the end of the file",
                               what);
    }
    size_t n = utf8_char_len(reader->at, left);
    if (starts_ident(*reader->at)) { /* shows a whole word instead of its first letter */
        while (n < left && n < 40 && starts_ident(reader->at[n])) {
            n++;
        }
    }
    return doc_parse_error(reader->source, reader->line, "expected %s, got \"%.*s\"", what, (int)n,
                           reader->at);
}

/* Returns: 99 for a character that is no digit in any base. */
static int digit_of(char c) {
    int value = hex_value(c);
    return value < 0 ? 99 : value;
}

/* Takes up to `max` digits of `base`. Returns: the number of digits taken. */
static unsigned take_digits(struct pbtxt_reader *reader, int base, unsigned max, uint32_t *out) {
    unsigned n = 0;
    for (*out = 0; n < max && digit_of(peek_char(reader)) < base; n++) {
        *out = *out * (uint32_t)base + (uint32_t)digit_of(*reader->at++);
    }
    return n;
}

/* ---- strings ("String Literals") ------------------------------------------------------------- */

/* After "\u" or "\U". Two "\u" with a surrogate pair are one character. */
static enum status read_code_point(struct pbtxt_reader *reader, char letter, struct buf *out) {
    uint32_t code, low;
    char bytes[UTF8_MAX_BYTES];
    unsigned n = letter == 'u' ? 4 : 8;
    if (take_digits(reader, 16, n, &code) != n) {
        return doc_parse_error(reader->source, reader->line,
                               "expected %u hexadecimal digits after \"\\%c\"", n, letter);
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
    buf_add(out, bytes, utf8_encode(code, bytes));
    return ST_OK;
}

/* After the backslash. */
static enum status read_escape(struct pbtxt_reader *reader, struct buf *out) {
    static const char letters[] = "abfnrtv?\\'\"";
    static const char meanings[] = "\a\b\f\n\r\t\v?\\'\"";
    char c = peek_char(reader);
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
            return syntax_error(reader, "hexadecimal digits after \"\\x\"");
        }
        buf_add_char(out, (char)byte);
        return ST_OK;
    }
    if (c == 'u' || c == 'U') {
        reader->at++;
        return read_code_point(reader, c, out);
    }
    return syntax_error(reader, "an escape (one of abfnrtv?\\'\", octal digits, x, u or U) after "
                                "\"\\\"");
}

/* At a quote; appends the string's content. */
static enum status read_quoted(struct pbtxt_reader *reader, struct buf *out) {
    char quote = *reader->at++;
    enum status status = ST_OK;
    while (status == ST_OK) {
        char c = peek_char(reader);
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
    while (peek_char(reader) == '"' || peek_char(reader) == '\'') {
        enum status status = read_quoted(reader, &text);
        if (status != ST_OK) {
            return status;
        }
        skip_blanks(reader);
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

/* Takes all characters that could belong to a number, so that "12abc" is reported as one wrong
 * number. */
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

/* All of `text` from `skip` on, as an unsigned integer in octal ("017") or hexadecimal ("0x1F"). */
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
        return false; /* starts as octal or hexadecimal, with invalid digits */
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
    struct str word = take_ident(reader);
    bool yes = str_is(word, "true") || str_is(word, "True") || str_is(word, "t");
    bool no = str_is(word, "false") || str_is(word, "False") || str_is(word, "f");
    bool infinite = str_eq_nocase(word, STR("inf")) || str_eq_nocase(word, STR("infinity"));
    if (infinite || str_eq_nocase(word, STR("nan"))) {
        double real = infinite ? (double)INFINITY : (double)NAN;
        value->kind = DOC_REAL;
        value->real = negative ? -real : real;
    } else if (negative) {
        reader->at = start;
        return syntax_error(reader, "a number after \"-\"");
    } else if (yes || no) {
        value->kind = DOC_BOOL;
        value->boolean = yes;
    } else if (word.len > 0) {
        value->kind = DOC_STR;
        value->text = word;
    } else {
        return syntax_error(reader, "a value");
    }
    return ST_OK;
}

/* Reads a string (adjacent ones are one), a number or a word ("Fields", ScalarValue). */
static enum status read_scalar(struct pbtxt_reader *reader, struct doc_value **out) {
    struct doc_value *value = doc_value_new(reader->source->arena, DOC_NULL, reader->line);
    bool negative = peek_char(reader) == '-';
    if (!value) {
        return doc_no_memory(reader->source);
    }
    *out = value;
    if (negative) {
        reader->at++;
        skip_blanks(reader);
    }
    char c = peek_char(reader);
    if (!negative && (c == '"' || c == '\'')) {
        return read_string(reader, value);
    }
    return is_digit(c) || c == '.' ? read_number(reader, negative, value)
                                   : read_word(reader, negative, value);
}

/* ---- fields that are given several times ----------------------------------------------------- */

struct member {
    struct doc_value *value;
    size_t order;
};

static int compare_members(const void *a, const void *b) {
    const struct member *left = a, *right = b;
    struct str l = left->value->key, r = right->value->key;
    int order = memcmp(l.ptr, r.ptr, l.len < r.len ? l.len : r.len);
    if (order == 0 && l.len != r.len) {
        return l.len < r.len ? -1 : 1;
    }
    if (order == 0) {
        return left->order < right->order ? -1 : 1;
    }
    return order;
}

/* Makes one array of `n` members of the same name. The elements of a list among them are appended
 * one by one. */
static struct doc_value *merge_members(struct arena *arena, const struct member *members,
                                       size_t n) {
    const struct doc_value *first = members[0].value;
    struct doc_value *array = doc_value_new(arena, DOC_ARRAY, first->line);
    if (!array) {
        return NULL;
    }
    array->key = first->key;
    array->key_line = first->key_line;
    for (size_t i = 0; i < n; i++) {
        struct doc_value *value = members[i].value;
        if (value->kind != DOC_ARRAY) {
            doc_value_append(array, value);
            continue;
        }
        for (struct doc_value *child = value->children.first; child;) {
            struct doc_value *next = child->next;
            doc_value_append(array, child);
            child = next;
        }
    }
    return array;
}

/* `members` and `slots` have the capacity for all members of `message`. */
static bool merge_with(struct arena *arena, struct doc_value *message, struct member *members,
                       struct doc_value **slots) {
    size_t n = 0;
    for (struct doc_value *child = message->children.first; child; child = child->next) {
        slots[n] = child;
        members[n] = (struct member){child, n};
        n++;
    }
    qsort(members, n, sizeof(*members), compare_members);
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n; same++) {
            if (!str_eq(members[i].value->key, members[i + same].value->key)) {
                break;
            }
            slots[members[i + same].order] = NULL;
        }
        if (same > 1) {
            slots[members[i].order] = merge_members(arena, members + i, same);
            if (!slots[members[i].order]) {
                return false;
            }
        }
    }
    message->children = (struct doc_children){0};
    for (size_t i = 0; i < n; i++) {
        if (slots[i]) {
            doc_value_append(message, slots[i]);
        }
    }
    return true;
}

/* Joins fields of the same name, at the position of the first one. */
static enum status merge_repeated(struct pbtxt_reader *reader, struct doc_value *message) {
    size_t n = message->children.n;
    if (n < 2) {
        return ST_OK;
    }
    struct member *members = calloc(n, sizeof(*members));
    struct doc_value **slots = calloc(n, sizeof(*slots));
    bool ok = members && slots && merge_with(reader->source->arena, message, members, slots);
    free(members);
    free(slots);
    return ok ? ST_OK : doc_no_memory(reader->source);
}

/* ---- messages -------------------------------------------------------------------------------- */

static enum status read_fields(struct pbtxt_reader *reader, struct doc_value *message, char close);

static enum status enter_level(struct pbtxt_reader *reader) {
    if (reader->depth == DOC_MAX_DEPTH) {
        return doc_parse_error(reader->source, reader->line, "nested deeper than %d",
                               DOC_MAX_DEPTH);
    }
    reader->depth++;
    return ST_OK;
}

static bool opens_message(char c) {
    return c == '{' || c == '<';
}

/* At '{' or '<'. */
static enum status read_message(struct pbtxt_reader *reader, struct doc_value **out) {
    enum status status = enter_level(reader);
    if (status != ST_OK) {
        return status;
    }
    char close = *reader->at++ == '{' ? '}' : '>';
    *out = doc_value_new(reader->source->arena, DOC_OBJECT, reader->line);
    if (!*out) {
        return doc_no_memory(reader->source);
    }
    status = read_fields(reader, *out, close);
    reader->depth--;
    return status;
}

/* One element of a list; without a colon before the list, it must be a message. */
static enum status read_element(struct pbtxt_reader *reader, bool colon, struct doc_value *list) {
    struct doc_value *value = NULL;
    enum status status;
    skip_blanks(reader);
    if (opens_message(peek_char(reader))) {
        status = read_message(reader, &value);
    } else if (colon) {
        status = read_scalar(reader, &value);
    } else {
        status = syntax_error(reader, "\"{\" or \"<\" (a list of anything else needs a colon)");
    }
    if (status == ST_OK) {
        doc_value_append(list, value);
        skip_blanks(reader);
    }
    return status;
}

/* At '['. */
static enum status read_list(struct pbtxt_reader *reader, bool colon, struct doc_value **out) {
    struct doc_value *list = doc_value_new(reader->source->arena, DOC_ARRAY, reader->line);
    enum status status = list ? enter_level(reader) : doc_no_memory(reader->source);
    if (status != ST_OK) {
        return status;
    }
    *out = list;
    reader->at++;
    skip_blanks(reader);
    if (peek_char(reader) != ']') {
        status = read_element(reader, colon, list);
        while (status == ST_OK && peek_char(reader) == ',') {
            reader->at++;
            status = read_element(reader, colon, list);
        }
    }
    if (status == ST_OK && peek_char(reader) != ']') {
        status = syntax_error(reader, "\",\" or \"]\"");
    }
    if (status == ST_OK) {
        reader->at++;
        reader->depth--;
    }
    return status;
}

/* The value after a field's name. */
static enum status read_value(struct pbtxt_reader *reader, struct str name,
                              struct doc_value **out) {
    skip_blanks(reader);
    bool colon = peek_char(reader) == ':';
    if (colon) {
        reader->at++;
        skip_blanks(reader);
    }
    if (opens_message(peek_char(reader))) {
        return read_message(reader, out);
    }
    if (peek_char(reader) == '[') {
        return read_list(reader, colon, out);
    }
    if (!colon) {
        char what[120];
        int cut = name.len > 60 ? 60 : (int)name.len;
        snprintf(what, sizeof(what), "\":\" or \"{\" after \"%.*s\"", cut, name.ptr);
        return syntax_error(reader, what);
    }
    return read_scalar(reader, out);
}

static enum status read_name(struct pbtxt_reader *reader, struct str *name) {
    if (peek_char(reader) == '[') {
        return doc_parse_error(reader->source, reader->line,
                               "extensions and Any (\"[name]\") are not supported");
    }
    *name = take_ident(reader);
    return name->len > 0 ? ST_OK : syntax_error(reader, "a field's name");
}

static enum status read_field(struct pbtxt_reader *reader, struct doc_value *message) {
    struct str name = {NULL, 0};
    struct doc_value *value = NULL;
    unsigned line = reader->line;
    enum status status = read_name(reader, &name);
    if (status == ST_OK) {
        status = read_value(reader, name, &value);
    }
    if (status != ST_OK) {
        return status;
    }
    assert(value);
    value->key = name;
    value->key_line = line;
    doc_value_append(message, value);
    skip_blanks(reader);
    if (peek_char(reader) == ',' || peek_char(reader) == ';') {
        reader->at++;
        skip_blanks(reader);
    }
    return ST_OK;
}

/* Reads fields up to `close` and skips it; '\0': up to the end of the file. */
static enum status read_fields(struct pbtxt_reader *reader, struct doc_value *message, char close) {
    enum status status = ST_OK;
    skip_blanks(reader);
    while (status == ST_OK && reader->at < reader->end && (close == '\0' || *reader->at != close)) {
        status = read_field(reader, message);
    }
    if (status == ST_OK && close != '\0') {
        if (reader->at == reader->end) {
            return doc_parse_error(
                reader->source, reader->line,
                "expected \"%c\" to close the \"%c\" of line %u, got the end of the "
                "file",
                close, close == '}' ? '{' : '<', message->line);
        }
        reader->at++;
    }
    return status == ST_OK ? merge_repeated(reader, message) : status;
}

enum status doc_pbtxt_parse(const struct doc_source *source, struct doc_value **root) {
    const char *text = source->text.ptr ? source->text.ptr : "";
    struct pbtxt_reader reader = {
        .source = source, .at = text, .end = text + source->text.len, .line = 1, .depth = 1};
    *root = doc_value_new(source->arena, DOC_OBJECT, 1);
    return *root ? read_fields(&reader, *root, '\0') : doc_no_memory(source);
}
