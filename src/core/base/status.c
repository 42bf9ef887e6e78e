/* The rows of status.def as texts and codes, and the formatting of error texts, which are made safe
 * for headers, log lines and JSON. */
#include "core/base/status.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

struct status_row {
    const char *name;
    const char *text;
    int http;
    int grpc;
    int mip;
};

#define STATUS(name, text, http, grpc, mip) [ST_##name] = {#name, text, http, grpc, mip},
static const struct status_row status_rows[ST_COUNT_] = {
#include "core/base/status.def"
};
#undef STATUS

static const struct status_row *status_row(enum status status) {
    assert((unsigned)status < ST_COUNT_);
    return &status_rows[status];
}

const char *status_name(enum status status) {
    return status_row(status)->name;
}

const char *status_text(enum status status) {
    return status_row(status)->text;
}

int status_http(enum status status) {
    return status_row(status)->http;
}

int status_grpc(enum status status) {
    return status_row(status)->grpc;
}

int status_mip(enum status status) {
    return status_row(status)->mip;
}

enum status status_of_errno(int why, enum status otherwise) {
    return why == EMFILE || why == ENFILE || why == ENOMEM || why == EAGAIN ? ST_NOT_READY
                                                                            : otherwise;
}

/* Bytes at the end of `text` that begin an incomplete character; 0 when the last character is
 * complete. */
static size_t unfinished_tail(const char *text, size_t len) {
    for (size_t n = 1; n <= 3 && n <= len; n++) {
        unsigned char c = (unsigned char)text[len - n];
        if (c >= 0xc0) {
            size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
            return want > n ? n : 0;
        }
        if (c < 0x80) {
            return 0;
        }
    }
    return 0;
}

/* Does the word contain only characters from ' ' to '~'? A byte below ' ' borrows from the next one
 * when the space is subtracted, and one above '~' overflows into its highest bit. */
static bool is_plain(const char *text) {
    const uint64_t each = 0x0101010101010101u;
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return (((word - each * ' ') | (word + each) | word) & each * 0x80) == 0;
}

/* Makes `text` safe for any protocol, in place. `cut`: it was longer, and its last character may be
 * incomplete. */
static void sanitize_text(char *text, bool cut) {
    size_t len = strlen(text);
    if (cut) {
        len -= unfinished_tail(text, len);
        text[len] = '\0';
    }
    for (size_t at = 0; at < len;) {
        if (at + sizeof(uint64_t) <= len && is_plain(text + at)) {
            at += sizeof(uint64_t);
            continue;
        }
        if ((unsigned char)(text[at] - ' ') < 0x7f - ' ') {
            at++;
            continue;
        }
        size_t n = utf8_char_len(text + at, len - at);
        if (n == 0) {
            text[at] = '?';
            n = 1;
        } else if (utf8_is_control(text + at, n)) {
            memset(text + at, '?', n);
        }
        at += n;
    }
}

static void format_sanitized(char text[ERROR_TEXT_BYTES], const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void format_sanitized(char text[ERROR_TEXT_BYTES], const char *format, va_list args) {
    size_t len = strlen(format);
    if (len < ERROR_TEXT_BYTES && !memchr(format, '%', len)) { /* no format specifier */
        memcpy(text, format, len + 1);
        sanitize_text(text, false);
        return;
    }
    int n = vsnprintf(text, ERROR_TEXT_BYTES, format, args);
    if (n < 0) {
        text[0] = '\0';
    }
    sanitize_text(text, n >= ERROR_TEXT_BYTES);
}

enum status error_setv(struct error *err, enum status status, const char *format, va_list args) {
    if (err) {
        /* By way of a buffer, as the arguments may point to err->text. */
        char text[ERROR_TEXT_BYTES];
        format_sanitized(text, format, args);
        memcpy(err->text, text, strlen(text) + 1);
        err->status = status;
    }
    return status;
}

enum status error_set(struct error *err, enum status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    error_setv(err, status, format, args);
    va_end(args);
    return status;
}

enum status error_no_memory(struct error *err, const char *what, ...) {
    char noun[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, what);
    format_sanitized(noun, what, args);
    va_end(args);
    return error_set(err, ST_NO_MEMORY, "out of memory for %s", noun);
}

enum status error_prefix(struct error *err, const char *format, ...) {
    char prefix[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    format_sanitized(prefix, format, args);
    va_end(args);
    return error_set(err, err->status, "%s: %s", prefix, err->text);
}
