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
    struct str text;
    size_t at;
    uint64_t separators; /* commas, colons and opening brackets outside strings */
    uint64_t depth;
    uint64_t deepest;
    bool closed;  /* the root's last bracket was seen; `at` is behind it */
    bool suspect; /* an N or an I was seen outside strings */
};

/* Comparing vectors gives 0xff in the lanes where it holds: these say in which (a bit each, the
 * first lane's lowest), and whether in any. */
static inline unsigned bits_of(block lanes) {
#ifdef __SSE2__
    typedef char bytes __attribute__((vector_size(BLOCK)));
    return (unsigned)__builtin_ia32_pmovmskb128((bytes)lanes);
#else
    halves both = (halves)lanes & (halves){0x8040201008040201u, 0x8040201008040201u};
    uint64_t low = both[0] * 0x0101010101010101u >> 56;
    uint64_t high = both[1] * 0x0101010101010101u >> 56;
    return (unsigned)(low | high << 8);
#endif
}

static inline bool any_of(block lanes) {
#ifdef __SSE2__
    return bits_of(lanes) != 0;
#else
    halves both = (halves)lanes;
    return (both[0] | both[1]) != 0;
#endif
}

/* The sum of the lanes, each from 0 to 255. */
static unsigned sum_of(block lanes) {
    halves both = (halves)lanes, even = {0x00ff00ff00ff00ffu, 0x00ff00ff00ff00ffu};
    halves pairs = (both & even) + (both >> 8 & even);
    return (unsigned)((pairs[0] + pairs[1]) * 0x0001000100010001u >> 48);
}

/* `at` is behind the quote that opens a string. Returns: where the text goes on behind the
 * string. */
static size_t skip_string(struct str text, size_t at) {
    while (at < text.len) {
        if (text.len - at >= BLOCK) {
            block bytes;
            memcpy(&bytes, text.ptr + at, BLOCK);
            unsigned stops = bits_of((bytes == '"') | (bytes == '\\'));
            if (stops == 0) {
                at += BLOCK;
                continue;
            }
            at += (unsigned)__builtin_ctz(stops);
        }
        if (text.ptr[at] == '"') {
            return at + 1;
        }
        at += text.ptr[at] == '\\' ? 2 : 1; /* with what it escapes */
    }
    return text.len;
}

/* What a byte outside of strings is to the scan. */
enum { PLAIN, SEPARATOR, OPEN, CLOSE, QUOTE, SUSPECT };

static const unsigned char kinds[256] = {
    [','] = SEPARATOR, [':'] = SEPARATOR, ['['] = OPEN,    ['{'] = OPEN,    [']'] = CLOSE,
    ['}'] = CLOSE,     ['"'] = QUOTE,     ['N'] = SUSPECT, ['I'] = SUSPECT,
};

static void enter(struct scanner *s) {
    s->separators++;
    s->depth++;
    s->deepest = s->depth > s->deepest ? s->depth : s->deepest;
}

static void leave(struct scanner *s) {
    s->closed = s->depth == 1;
    s->depth -= s->depth > 0;
}

/* Goes through a block's worth of bytes one by one; a string counts as one. */
static void scan_busy(struct scanner *s) {
    const struct str text = s->text;
    size_t at = s->at;
    for (int n = BLOCK; n > 0 && at < text.len && !s->closed; n--) {
        switch (kinds[(unsigned char)text.ptr[at++]]) {
        case SEPARATOR:
            s->separators++;
            break;
        case OPEN:
            enter(s);
            break;
        case CLOSE:
            leave(s);
            break;
        case QUOTE:
            at = skip_string(text, at);
            break;
        case SUSPECT:
            s->suspect = true;
            break;
        default:
            break;
        }
    }
    s->at = at;
}

/* Has the block something in it that must be looked at one by one? Numbers, blanks and commas are
 * told from the rest at once; what letters there may be besides (true, false, null) takes a second
 * look. */
static bool is_busy(block bytes) {
    block folded = bytes | 0x20; /* brackets become braces */
    if (!any_of(((bytes > '9') & ~(folded == 'e')) | (bytes == '"'))) {
        return false;
    }
    return any_of((folded == '{') | (folded == '}') | (bytes == ':') | (bytes == '"') |
                  (bytes == 'N') | (bytes == 'I'));
}

/* Goes through whole blocks that are not busy as long as there are any. */
static void scan_elements(struct scanner *s) {
    const char *data = s->text.ptr + s->at;
    size_t blocks = (s->text.len - s->at) / BLOCK, i = 0;
    while (i < blocks) {
        /* A lane counts to 255 at most. */
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

static void scan_all(struct scanner *s) {
    while (s->at < s->text.len && !s->closed) {
        scan_elements(s);
        scan_busy(s);
    }
}

/* ---- words, where there may be a NaN or an Infinity ------------------------------------------ */

static bool ends_token(char c) {
    static const char ends[] = {' ', '\t', '\r', '\n', ',', ':', '[', ']', '{', '}', '"'};
    return memchr(ends, c, sizeof(ends)) != NULL;
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
        if (n_bytes > 0 && is_letter(text.ptr[first + sign])) {
            judge_word(str_make(text.ptr + first, n_bytes), first, out);
        }
        at += n_bytes == 0; /* a separator */
    }
}

void json_scan(struct str text, struct json_scan *out) {
    struct scanner s = {.text = text};
    scan_all(&s);
    *out = (struct json_scan){.n_values = s.separators + 1, .depth = s.deepest, .end = s.at};
    if (s.suspect) {
        scan_words(str_make(text.ptr, s.at), out);
    }
}
