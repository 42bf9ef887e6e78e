/* Scans a text in blocks of 16 bytes, with the compilers' portable vectors: a block of numbers
 * takes two dozen instructions. Strings are masked out of a block by the parity of its quotes; only
 * brackets are processed one by one. The scan counts values by the character before them: each
 * follows a comma, a colon or an opening bracket, or is the root. */
#include "codec/json/scan.h"

#include <string.h>

#include "core/base/simd.h"

enum { BLOCK = SIMD_LANES, ALL_LANES = 0xffff };

typedef simd_i8x16 block;
typedef simd_u64x2 halves;

struct scanner {
    struct str text;
    size_t at;
    uint64_t separators; /* commas, colons and opening brackets outside strings */
    uint64_t depth;
    uint64_t deepest;
    bool in_string;
    bool escaped; /* the byte before `at` is a backslash that escapes the byte at `at` */
    bool closed;  /* the root's last bracket was found; `at` is after it */
    bool suspect; /* an N or an I was found outside strings */
};

/* The sum of the lanes, each from 0 to 255. */
static unsigned sum_of(block lanes) {
    halves both = (halves)lanes, even = {0x00ff00ff00ff00ffu, 0x00ff00ff00ff00ffu};
    halves pairs = (both & even) + (both >> 8 & even);
    return (unsigned)((pairs[0] + pairs[1]) * 0x0001000100010001u >> 48);
}

/* The number of set bits, of 16. */
static inline unsigned count_lanes(unsigned lanes) {
    lanes -= lanes >> 1 & 0x5555;
    lanes = (lanes & 0x3333) + (lanes >> 2 & 0x3333);
    lanes = (lanes + (lanes >> 4)) & 0x0f0f;
    return (lanes + (lanes >> 8)) & 0x1f;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Removes the escaped quotes from `quotes`, and stores whether the next block begins escaped. */
static unsigned unescaped(struct scanner *s, unsigned quotes, unsigned backslashes) {
    bool escaped = s->escaped;
    for (unsigned lane = 0; lane < BLOCK && (escaped || backslashes >> lane != 0); lane++) {
        if (escaped) {
            quotes &= ~(1u << lane);
            escaped = false;
        } else {
            escaped = (backslashes >> lane & 1) != 0;
        }
    }
    /* Where the loop ended early no escape is pending; at the end of the block one may be. */
    s->escaped = escaped;
    return quotes;
}

/* The lanes inside of strings, their opening quotes included: each is set where an odd number of
 * quotes is at or before it. */
static unsigned in_strings(struct scanner *s, unsigned quotes) {
    unsigned lanes = quotes;
    lanes ^= lanes << 1;
    lanes ^= lanes << 2;
    lanes ^= lanes << 4;
    lanes ^= lanes << 8;
    lanes ^= s->in_string ? ALL_LANES : 0;
    s->in_string = (lanes >> (BLOCK - 1) & 1) != 0;
    return lanes & ALL_LANES;
}

/* Tracks the nesting through a block's brackets. Returns: the number of its bytes that belong to
 * the root. */
static unsigned walk_brackets(struct scanner *s, unsigned opens, unsigned closes) {
    for (unsigned left = opens | closes; left != 0; left &= left - 1) {
        if ((opens & left & (0 - left)) != 0) {
            s->depth++;
            s->deepest = s->depth > s->deepest ? s->depth : s->deepest;
        } else if (s->depth > 0 && --s->depth == 0) {
            s->closed = true;
            return (unsigned)__builtin_ctz(left) + 1;
        }
    }
    return BLOCK;
}

/* Any block, inside of a string or not. */
static void scan_block(struct scanner *s, block bytes) {
    block folded = bytes | 0x20; /* brackets become braces */
    unsigned quotes = simd_mask(bytes == '"'), backslashes = simd_mask(bytes == '\\');
    if (backslashes != 0 || s->escaped) {
        quotes = unescaped(s, quotes, backslashes);
    }
    unsigned outside = ALL_LANES & ~in_strings(s, quotes);
    unsigned opens = simd_mask(folded == '{') & outside;
    unsigned closes = simd_mask(folded == '}') & outside;
    unsigned separators = simd_mask((bytes == ',') | (bytes == ':')) & outside;
    s->separators += count_lanes(separators | opens);
    s->suspect |= (simd_mask((bytes == 'N') | (bytes == 'I')) & outside) != 0;
    s->at += walk_brackets(s, opens, closes);
}

/* Does the block contain anything besides elements: numbers, blanks, commas, true, false and null?
 * Letters need a second check. */
static bool is_busy(block bytes) {
    block folded = bytes | 0x20;
    if (!simd_any(((bytes > '9') & ~(folded == 'e')) | (bytes == '"'))) {
        return false;
    }
    return simd_any((folded == '{') | (folded == '}') | (bytes == ':') | (bytes == '"') |
                    (bytes == '\\') | (bytes == 'N') | (bytes == 'I'));
}

/* Scans blocks of elements outside of strings as long as there are any. */
static void scan_elements(struct scanner *s) {
    const char *data = s->text.ptr + s->at;
    size_t blocks = (s->text.len - s->at) / BLOCK, i = 0;
    while (i < blocks) {
        /* A lane counts up to 255. */
        size_t end = blocks - i > UINT8_MAX ? i + UINT8_MAX : blocks;
        block commas = {0}, bytes;
        for (; i < end; i++) {
            memcpy(&bytes, data + i * BLOCK, BLOCK);
            if (is_busy(bytes)) {
                blocks = i;
                break;
            }
            commas -= bytes == ',';
        }
        s->separators += sum_of(commas);
    }
    s->at += blocks * BLOCK;
}

/* Scans blocks inside of a string as long as there are any. */
static void scan_inside(struct scanner *s) {
    const char *data = s->text.ptr + s->at;
    size_t blocks = (s->text.len - s->at) / BLOCK, i = 0;
    for (block bytes; i < blocks; i++) {
        memcpy(&bytes, data + i * BLOCK, BLOCK);
        if (simd_any((bytes == '"') | (bytes == '\\'))) {
            break;
        }
    }
    s->at += i * BLOCK;
}

/* The block at `at`; after the end of the text it contains zeros, which count as nothing. */
static inline block load_block(struct str text, size_t at) {
    block bytes = {0};
    if (text.len - at >= BLOCK) {
        memcpy(&bytes, text.ptr + at, BLOCK);
    } else {
        memcpy(&bytes, text.ptr + at, text.len - at);
    }
    return bytes;
}

static void scan_blocks(struct scanner *s) {
    while (s->at < s->text.len && !s->closed) {
        block bytes = load_block(s->text, s->at);
        bool whole = s->text.len - s->at >= BLOCK && !s->escaped;
        if (whole && s->in_string && !simd_any((bytes == '"') | (bytes == '\\'))) {
            scan_inside(s);
        } else if (whole && !s->in_string && !is_busy(bytes)) {
            scan_elements(s);
        } else {
            scan_block(s, bytes);
        }
    }
    s->at = s->at < s->text.len ? s->at : s->text.len;
}

/* ---- words, where there may be a NaN or an Infinity ------------------------------------------ */

/* `at` is after the opening quote of a string. Returns: the offset after its closing quote. */
static size_t skip_string(struct str text, size_t at) {
    while (at < text.len && text.ptr[at] != '"') {
        at += text.ptr[at] == '\\' ? 2 : 1; /* skips the escaped character too */
    }
    return at < text.len ? at + 1 : text.len;
}

static bool ends_token(char c) {
    static const char ends[] = {' ', '\t', '\r', '\n', ',', ':', '[', ']', '{', '}', '"'};
    return memchr(ends, c, sizeof(ends)) != NULL;
}

/* Checks a token that is no number, with the sign before it. */
static void check_word(struct str word, size_t at, struct json_scan *out) {
    if (str_is(word, "NaN") || str_is(word, "Infinity") || str_is(word, "-Infinity")) {
        out->non_finite = true;
    } else if (!out->has_unknown_word && !str_is(word, "true") && !str_is(word, "false") &&
               !str_is(word, "null")) {
        out->has_unknown_word = true;
        out->unknown_word_offset = at;
        out->unknown_word_bytes = word.len;
    }
}

static void scan_words(struct str text, struct json_scan *out) {
    for (size_t at = 0; at < text.len;) {
        if (text.ptr[at] == '"') {
            at = skip_string(text, at + 1);
            continue;
        }
        size_t first = at;
        while (at < text.len && !ends_token(text.ptr[at])) {
            at++;
        }
        size_t n_bytes = at - first;
        size_t sign = n_bytes > 1 && text.ptr[first] == '-' ? 1 : 0;
        char letter = n_bytes > 0 ? (char)(text.ptr[first + sign] | 0x20) : '\0';
        if (letter >= 'a' && letter <= 'z') {
            check_word(str_make(text.ptr + first, n_bytes), first, out);
        }
        at += n_bytes == 0; /* a separator */
    }
}

void json_scan(struct str text, struct json_scan *out) {
    struct scanner s = {.text = text};
    scan_blocks(&s);
    *out = (struct json_scan){.n_values = s.separators + 1, .depth = s.deepest, .end = s.at};
    if (s.suspect) {
        scan_words(str_make(text.ptr, s.at), out);
    }
}
