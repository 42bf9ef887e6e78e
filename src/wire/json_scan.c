/* The scan goes through a text in blocks of 16 bytes, in the compilers' portable vectors: a block
 * of numbers costs a dozen instructions, and only brackets are looked at one by one. It refuses to
 * know JSON's grammar: every value stands behind a comma, a colon or an opening bracket, or is the
 * root, and that is all that is needed to count. */
#include "wire/json_scan.h"

#include <string.h>

enum { BLOCK = 16 };

typedef signed char block __attribute__((vector_size(BLOCK)));
typedef uint64_t halves __attribute__((vector_size(BLOCK)));

struct scanner {
    const char *data;
    size_t len;
    size_t at;
    uint64_t separators; /* commas, colons and opening brackets outside strings */
    uint64_t depth;
    uint64_t deepest;
    bool closed;  /* the root's last bracket was seen; `at` is behind it */
    bool suspect; /* an N or an I was seen outside strings */
};

/* The bytes at `at`; zeros behind the end of the text. */
static block load(const struct scanner *s, size_t at) {
    block bytes = {0};
    size_t left = s->len - at;
    if (left >= BLOCK) {
        memcpy(&bytes, s->data + at, BLOCK);
    } else {
        memcpy(&bytes, s->data + at, left);
    }
    return bytes;
}

/* Comparing vectors gives 0xff in the lanes where it holds: these say whether any does, and which
 * (a bit each, the first lane's lowest). */
static bool any_of(block lanes) {
    halves both = (halves)lanes;
    return (both[0] | both[1]) != 0;
}

/* The sum of the lanes, each from 0 to 255. */
static unsigned sum_of(block lanes) {
    halves both = (halves)lanes, even = {0x00ff00ff00ff00ffu, 0x00ff00ff00ff00ffu};
    halves pairs = (both & even) + (both >> 8 & even);
    return (unsigned)((pairs[0] + pairs[1]) * 0x0001000100010001u >> 48);
}

static unsigned bits_of(block lanes) {
    halves both = (halves)lanes & (halves){0x8040201008040201u, 0x8040201008040201u};
    uint64_t low = both[0] * 0x0101010101010101u >> 56;
    uint64_t high = both[1] * 0x0101010101010101u >> 56;
    return (unsigned)(low | high << 8);
}

/* Starts at the quote that opens a string, ends behind the one that closes it. */
static void skip_string(struct scanner *s) {
    size_t at = s->at + 1;
    while (at < s->len) {
        block bytes = load(s, at);
        block stops = (bytes == '"') | (bytes == '\\');
        if (!any_of(stops)) {
            at += BLOCK;
            continue;
        }
        at += (unsigned)__builtin_ctz(bits_of(stops));
        if (s->data[at] == '"') {
            at++;
            break;
        }
        at += 2; /* the backslash and what it escapes */
    }
    s->at = at < s->len ? at : s->len;
}

/* Follows the nesting through a block's brackets. Returns: how many of its bytes, of `n`, belong to
 * the root. */
static unsigned walk_brackets(struct scanner *s, unsigned opens, unsigned closes, unsigned n) {
    for (unsigned left = opens | closes; left != 0; left &= left - 1) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        if ((opens >> lane & 1) != 0) {
            s->depth++;
            s->deepest = s->depth > s->deepest ? s->depth : s->deepest;
        } else if (s->depth > 0 && --s->depth == 0) {
            s->closed = true;
            return lane + 1;
        }
    }
    return n;
}

/* A block with something else in it than numbers: goes on behind it, or behind the first string or
 * suspect in it. */
static void scan_busy(struct scanner *s, block bytes) {
    block folded = bytes | 0x20; /* brackets become braces */
    block opens = folded == '{', closes = folded == '}';
    block quotes = bytes == '"', suspects = (bytes == 'N') | (bytes == 'I');
    unsigned n = BLOCK;
    unsigned stops = bits_of(quotes | suspects);
    if (stops != 0) {
        n = (unsigned)__builtin_ctz(stops);
    }
    unsigned below = (1u << n) - 1;
    if (any_of(opens | closes)) {
        n = walk_brackets(s, bits_of(opens) & below, bits_of(closes) & below, n);
        below = (1u << n) - 1;
    }
    unsigned separators = bits_of((bytes == ',') | (bytes == ':') | opens) & below;
    s->separators += (unsigned)__builtin_popcount(separators);
    s->at += n;
    if (s->closed || n == BLOCK || s->at >= s->len) {
        return;
    }
    if (s->data[s->at] == '"') {
        skip_string(s);
    } else {
        s->suspect = true;
        s->at++;
    }
}

/* Is there something else in the block than numbers, blanks and commas: anything from ':' up but
 * the e of an exponent, or a quote? */
static block busy_lanes(block bytes) {
    return ((bytes > '9') & ~((bytes | 0x20) == 'e')) | (bytes == '"');
}

/* Goes through whole blocks of numbers as long as there are any. */
static void scan_numbers(struct scanner *s) {
    const char *data = s->data + s->at;
    size_t blocks = (s->len - s->at) / BLOCK, i = 0;
    while (i < blocks) {
        /* A lane counts to 255 at most. */
        size_t end = blocks - i > UINT8_MAX ? i + UINT8_MAX : blocks;
        block commas = {0}, bytes;
        for (; i < end; i++) {
            memcpy(&bytes, data + i * BLOCK, BLOCK);
            if (any_of(busy_lanes(bytes))) {
                blocks = i;
                break;
            }
            commas -= bytes == ',';
        }
        s->separators += sum_of(commas);
    }
    s->at += blocks * BLOCK;
}

static void scan_all(struct scanner *s) {
    while (s->at < s->len && !s->closed) {
        scan_numbers(s);
        if (s->at < s->len) {
            scan_busy(s, load(s, s->at));
        }
    }
    s->at = s->at < s->len ? s->at : s->len;
}

/* ---- words, where there may be a NaN or an Infinity ------------------------------------------ */

static bool ends_token(char c) {
    return memchr(" \t\r\n,:[]{}\"", c, 11) != NULL;
}

static bool is_letter(char c) {
    char folded = (char)(c | 0x20);
    return folded >= 'a' && folded <= 'z';
}

/* A token that is no number, with the sign before it. */
static void judge_word(struct str word, size_t at, struct json_scan *out) {
    if (str_is(word, "NaN") || str_is(word, "Infinity") || str_is(word, "-Infinity")) {
        out->non_finite = true;
    } else if (!out->other_word && !str_is(word, "true") && !str_is(word, "false") &&
               !str_is(word, "null")) {
        out->other_word = true;
        out->other_offset = at;
        out->other_bytes = word.len;
    }
}

static void scan_words(struct scanner *s, struct json_scan *out) {
    for (s->at = 0; s->at < s->len;) {
        size_t first = s->at;
        if (s->data[first] == '"') {
            skip_string(s);
            continue;
        }
        while (s->at < s->len && !ends_token(s->data[s->at])) {
            s->at++;
        }
        size_t n_bytes = s->at - first;
        size_t sign = n_bytes > 1 && s->data[first] == '-' ? 1 : 0;
        if (n_bytes > 0 && is_letter(s->data[first + sign])) {
            judge_word(str_make(s->data + first, n_bytes), first, out);
        }
        s->at += n_bytes == 0; /* a separator */
    }
}

void json_scan(struct str text, struct json_scan *out) {
    struct scanner s = {.data = text.ptr, .len = text.len};
    scan_all(&s);
    *out = (struct json_scan){.n_values = s.separators + 1, .depth = s.deepest, .end = s.at};
    if (s.suspect) {
        s.len = s.at;
        scan_words(&s, out);
    }
}
