/* One event is one line and one write. A line is built in a fixed buffer no longer than what a pipe
 * takes in one piece, so that lines of several threads and processes never mix; a value that does
 * not fit is cut and ends in "…". Nothing is allocated or buffered. */
#include "core/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "core/base/utf8.h"

/* The process's log settings. Levels may change at any time and are independent of each other. */
static struct {
    atomic_bool on[LOG_DEBUG]; /* one for each level below LOG_DEBUG */
    atomic_uint verbose;
    enum log_format format; /* set once, before threads start */
} config = {.on = {true, true, true}, .format = LOG_TEXT};

enum {
    LINE_BYTES = PIPE_BUF,
    LINE_TAIL_BYTES = 16, /* reserved for the end of a line: "…", quote, brace, newline */
};

struct line {
    char text[LINE_BYTES];
    size_t len;
    bool full; /* a value was cut; later ones are left out */
};

static const char *const level_names[] = {"ERROR", "WARNING", "INFO", "DEBUG"};
static const char *const level_words[] = {"error", "warning", "info", "debug"};

void log_configure(enum log_level level, enum log_format format) {
    for (unsigned i = 0; i < LOG_DEBUG; i++) {
        log_level_set((enum log_level)i, i <= (unsigned)level);
    }
    log_verbose_set(level == LOG_DEBUG);
    config.format = format;
}

bool log_enabled(enum log_level level) {
    return level == LOG_DEBUG ? log_verbose() > 0
                              : atomic_load_explicit(&config.on[level], memory_order_relaxed);
}

void log_level_set(enum log_level level, bool on) {
    atomic_store_explicit(&config.on[level], on, memory_order_relaxed);
}

void log_verbose_set(uint32_t verbose) {
    atomic_store_explicit(&config.verbose, verbose, memory_order_relaxed);
}

uint32_t log_verbose(void) {
    return atomic_load_explicit(&config.verbose, memory_order_relaxed);
}

static size_t line_space(const struct line *line) {
    size_t end = LINE_BYTES - LINE_TAIL_BYTES;
    return line->full || line->len > end ? 0 : end - line->len;
}

/* Adds all of `text`, or nothing when it does not fit. */
static bool line_add(struct line *line, const char *text, size_t n_bytes) {
    if (n_bytes > line_space(line)) {
        line->full = true;
        return false;
    }
    memcpy(line->text + line->len, text, n_bytes);
    line->len += n_bytes;
    return true;
}

/* Uses the bytes reserved for the tail: always fits. */
static void line_end(struct line *line, const char *text) {
    size_t n_bytes = strlen(text);
    memcpy(line->text + line->len, text, n_bytes);
    line->len += n_bytes;
}

static const char *short_escape(char c) {
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

/* Is the character of `n` bytes at `text` a control character that terminals obey: C0, DEL, C1? */
static bool is_control(const char *text, size_t n) {
    unsigned char c = (unsigned char)text[0];
    return (n == 1 && (c < 0x20 || c == 0x7f)) ||
           (n == 2 && c == 0xc2 && (unsigned char)text[1] < 0xa0);
}

/* Adds the character of `n` bytes at `text` (0: one byte that is no character), escaped as inside
 * quotes. */
static bool line_add_quoted(struct line *line, const char *text, size_t n) {
    char escape[8];
    const char *plain = n == 1 ? short_escape(text[0]) : NULL;
    if (plain) {
        return line_add(line, plain, 2);
    }
    if (n == 0 && config.format == LOG_JSON) {
        return line_add(line, "\xef\xbf\xbd", 3); /* U+FFFD */
    }
    if (n == 0) {
        snprintf(escape, sizeof(escape), "\\x%02x", (unsigned char)text[0]);
        return line_add(line, escape, 4);
    }
    if (is_control(text, n)) { /* the last byte of a C1 is its code */
        snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char)text[n - 1]);
        return line_add(line, escape, 6);
    }
    return line_add(line, text, n);
}

static void line_add_string(struct line *line, struct str text) {
    if (!line_add(line, "\"", 1)) {
        return;
    }
    for (size_t at = 0; at < text.len;) {
        size_t n = utf8_char_len(text.ptr + at, text.len - at);
        if (!line_add_quoted(line, text.ptr + at, n)) {
            line_end(line, "…");
            break;
        }
        at += n > 0 ? n : 1;
    }
    line_end(line, "\"");
}

/* Can `text` be written in a text line without quotes? */
static bool is_plain(struct str text) {
    for (size_t at = 0; at < text.len;) {
        const char *c = text.ptr + at;
        size_t n = utf8_char_len(c, text.len - at);
        if (n == 0 || is_control(c, n) || *c == ' ' || *c == '"' || *c == '\\' || *c == '=') {
            return false;
        }
        at += n;
    }
    return text.len > 0;
}

/* Adds the event in words, without quotes; a backend's text may contain any bytes. */
static void line_add_words(struct line *line, struct str text) {
    for (size_t at = 0; at < text.len;) {
        const char *c = text.ptr + at;
        size_t n = utf8_char_len(c, text.len - at);
        bool ok = n == 0 || is_control(c, n) ? line_add_quoted(line, c, n) : line_add(line, c, n);
        if (!ok) {
            line_end(line, "…");
            return;
        }
        at += n > 0 ? n : 1;
    }
}

static void line_add_real(struct line *line, double value) {
    char number[40];
    int n = snprintf(number, sizeof(number), "%.9g", value);
    if (config.format == LOG_JSON && !isfinite(value)) {
        line_add_string(line, str_make(number, (size_t)n));
    } else {
        line_add(line, number, (size_t)n);
    }
}

static void line_add_value(struct line *line, const struct log_field *field) {
    char number[24];
    switch (field->kind) {
    case LOG_FIELD_STR:
        if (config.format == LOG_TEXT && is_plain(field->str) &&
            field->str.len <= line_space(line)) {
            line_add(line, field->str.ptr, field->str.len);
        } else {
            line_add_string(line, field->str);
        }
        break;
    case LOG_FIELD_U64:
        line_add(line, number, (size_t)snprintf(number, sizeof(number), "%" PRIu64, field->u64));
        break;
    case LOG_FIELD_I64:
        line_add(line, number, (size_t)snprintf(number, sizeof(number), "%" PRId64, field->i64));
        break;
    case LOG_FIELD_F64:
        line_add_real(line, field->f64);
        break;
    }
}

static void line_add_field(struct line *line, const struct log_field *field) {
    size_t name_bytes = strlen(field->name);
    /* Left out unless the name and a short value fit: half a field would break the JSON. */
    if (name_bytes + 64 > line_space(line)) {
        line->full = true;
        return;
    }
    if (config.format == LOG_JSON) {
        line_add(line, ",", 1);
        line_add_string(line, str_make(field->name, name_bytes));
        line_add(line, ":", 1);
    } else {
        line_add(line, " ", 1);
        line_add(line, field->name, name_bytes);
        line_add(line, "=", 1);
    }
    line_add_value(line, field);
}

/* "2026-11-21T10:00:00.123Z" */
static size_t time_print(char *out, size_t capacity) {
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t n = strftime(out, capacity, "%Y-%m-%dT%H:%M:%S", &parts);
    return n + (size_t)snprintf(out + n, capacity - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

static void line_begin(struct line *line, enum log_level level, const char *event) {
    char when[48];
    size_t n = time_print(when, sizeof(when));
    if (config.format == LOG_TEXT) {
        line_add(line, when, n);
        line_add(line, " ", 1);
        line_add(line, level_names[level], strlen(level_names[level]));
        line_add(line, " ", 1);
        line_add_words(line, str_of(event));
        return;
    }
    line_add(line, "{\"time\":", 8);
    line_add_string(line, str_make(when, n));
    line_add(line, ",\"level\":", 9);
    line_add_string(line, str_of(level_words[level]));
    line_add(line, ",\"event\":", 9);
    line_add_string(line, str_of(event));
}

/* One write, unless a pipe or terminal takes only part of it. */
static void write_all(const char *text, size_t n_bytes) {
    while (n_bytes > 0) {
        ssize_t n = write(STDERR_FILENO, text, n_bytes);
        if (n > 0) {
            text += n;
            n_bytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&fd, 1, -1);
        } else if (errno != EINTR) {
            return; /* standard error is closed: there is nowhere to report it */
        }
    }
}

void log_write(enum log_level level, const char *event, const struct log_field *fields,
               unsigned n) {
    if (!log_enabled(level)) {
        return;
    }
    int saved = errno;
    struct line line;
    line.len = 0;
    line.full = false;
    line_begin(&line, level, event);
    for (unsigned i = 0; i < n; i++) {
        line_add_field(&line, &fields[i]);
    }
    line_end(&line, config.format == LOG_JSON ? "}\n" : "\n");
    write_all(line.text, line.len);
    errno = saved;
}

void log_message(enum log_level level, const char *event) {
    log_write(level, event, NULL, 0);
}
