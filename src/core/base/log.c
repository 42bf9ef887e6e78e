/* One event is one line and one write. A line is built in a fixed buffer no longer than what a pipe
 * takes in one piece, so that lines of several threads and processes never mix; a value that does
 * not fit is cut and ends in "…". Nothing is allocated or buffered; log_sink.c writes. */
#include "core/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/log_sink.h"
#include "core/base/metric/metric.h"
#include "core/base/utf8.h"

/* The process's log settings. Levels may change at any time and are independent of each other. */
static struct {
    atomic_bool on[LOG_DEBUG]; /* one for each level below LOG_DEBUG */
    atomic_uint verbose;
    atomic_bool iso8601;
    enum log_format format; /* set once, before threads start; as is `colour` */
    bool colour;            /* of the levels of LOG_TEXT */
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

enum log_format log_format(void) {
    return config.format;
}

void log_colour_set(bool on) {
    config.colour = on;
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

void log_iso8601_set(bool on) {
    atomic_store_explicit(&config.iso8601, on, memory_order_relaxed);
}

bool log_iso8601(void) {
    return atomic_load_explicit(&config.iso8601, memory_order_relaxed);
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
    if (utf8_is_control(text, n)) { /* the last byte of a C1 is its code */
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
        if (n == 0 || utf8_is_control(c, n) || *c == ' ' || *c == '"' || *c == '\\' || *c == '=') {
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
        bool ok =
            n == 0 || utf8_is_control(c, n) ? line_add_quoted(line, c, n) : line_add(line, c, n);
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

static void line_add_level(struct line *line, enum log_level level) {
    static const char *const colours[] = {"\033[31m", "\033[33m", "\033[32m", "\033[2m"};
    if (config.colour) {
        line_add(line, colours[level], strlen(colours[level]));
    }
    line_add(line, level_names[level], strlen(level_names[level]));
    if (config.colour) {
        line_add(line, "\033[0m", 4);
    }
}

static void line_begin(struct line *line, enum log_level level, const char *event) {
    char when[48];
    size_t n = time_print(when, sizeof(when));
    if (config.format == LOG_TEXT) {
        line_add(line, when, n);
        line_add(line, " ", 1);
        line_add_level(line, level);
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

/* Returns: the length of the line about `n` lines that standard error did not take. */
static size_t print_dropped(char *out, uint64_t n) {
    struct line line = {.len = 0};
    struct log_field field = LOG_U64("lines", n);
    line_begin(&line, LOG_WARNING, "log lines dropped: standard error was not read");
    line_add_field(&line, &field);
    line_end(&line, config.format == LOG_JSON ? "}\n" : "\n");
    memcpy(out, line.text, line.len);
    return line.len;
}

/* ---- the limit ------------------------------------------------------------------------------- */

/* The lines of one event, which its text's address identifies. */
struct event_rate {
    _Atomic(const char *) event;
    _Atomic uint64_t empty_ns;     /* when the lines written so far are forgotten: each adds a
                                   period */
    _Atomic uint64_t n_suppressed; /* since the last line */
};

enum { N_RATES = 512 }; /* more than the program has events */
static struct event_rate rates[N_RATES];

/* Returns: NULL: the table is full. */
static struct event_rate *rate_of(const char *event) {
    size_t at = ((uintptr_t)event >> 3) * 0x9e3779b1u % N_RATES;
    for (size_t i = 0; i < N_RATES; i++) {
        struct event_rate *rate = &rates[(at + i) % N_RATES];
        const char *expected = atomic_load_explicit(&rate->event, memory_order_relaxed);
        if (expected == event ||
            (!expected && (atomic_compare_exchange_strong(&rate->event, &expected, event) ||
                           expected == event))) {
            return rate;
        }
    }
    return NULL;
}

/* May a line of the event be written now? Counts it. */
static bool rate_allow(struct event_rate *rate) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    uint64_t period_ns = 1000000000 / LOG_EVENT_LINES_PER_SECOND;
    uint64_t empty_ns = atomic_load_explicit(&rate->empty_ns, memory_order_relaxed);
    uint64_t next_ns;
    do {
        next_ns = (empty_ns > now_ns ? empty_ns : now_ns) + period_ns;
        if (next_ns - now_ns > LOG_EVENT_BURST_LINES * period_ns) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&rate->empty_ns, &empty_ns, next_ns,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* With debug on, every line is written. Returns: false: leave the line out. Sets
 * `n_suppressed` to the lines of the event left out before. */
static bool limit_allow(const char *event, uint64_t *n_suppressed) {
    struct event_rate *rate = log_verbose() > 0 ? NULL : rate_of(event);
    *n_suppressed = 0;
    if (rate && !rate_allow(rate)) {
        atomic_fetch_add_explicit(&rate->n_suppressed, 1, memory_order_relaxed);
        metric_add(METRIC_LOG_LINES_LIMIT, 1);
        return false;
    }
    if (rate && atomic_load_explicit(&rate->n_suppressed, memory_order_relaxed) > 0) {
        *n_suppressed = atomic_exchange_explicit(&rate->n_suppressed, 0, memory_order_relaxed);
    }
    return true;
}

static void write_line(enum log_level level, const char *event, const struct log_field *fields,
                       unsigned n, uint64_t n_suppressed) {
    int saved = errno;
    struct line line;
    line.len = 0;
    line.full = false;
    line_begin(&line, level, event);
    if (n_suppressed > 0) {
        struct log_field field = LOG_U64("suppressed", n_suppressed);
        line_add_field(&line, &field);
    }
    for (unsigned i = 0; i < n; i++) {
        line_add_field(&line, &fields[i]);
    }
    line_end(&line, config.format == LOG_JSON ? "}\n" : "\n");
    log_sink_write(line.text, line.len, print_dropped);
    errno = saved;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields,
               unsigned n) {
    uint64_t n_suppressed;
    if (log_enabled(level) && limit_allow(event, &n_suppressed)) {
        write_line(level, event, fields, n, n_suppressed);
    }
}

void log_report(const char *event, struct str text) {
    if (log_enabled(LOG_WARNING)) {
        struct log_field field = LOG_STR("line", text);
        write_line(LOG_WARNING, event, &field, 1, 0);
    }
}

void log_pass(struct str text) {
    struct line line = {.len = 0};
    size_t n = text.len < line_space(&line) ? text.len : line_space(&line);
    line_add(&line, text.ptr, n);
    line_end(&line, "\n");
    log_sink_write(line.text, line.len, print_dropped);
}

void log_message(enum log_level level, const char *event) {
    log_write(level, event, NULL, 0);
}

void log_status_show(struct str text, unsigned columns) {
    char shown[LOG_SINK_STATUS_BYTES];
    size_t n_bytes = 0;
    unsigned n_columns = 0;
    for (size_t at = 0; at < text.len;) {
        size_t n = utf8_char_len(text.ptr + at, text.len - at);
        bool ok = n > 0 && !utf8_is_control(text.ptr + at, n);
        unsigned width = n < 3 ? 1 : 2; /* at most: those of two columns have three bytes or four */
        if (ok && (n_columns + width >= columns || n_bytes + n > sizeof(shown))) {
            break; /* the last column stays free: some terminals wrap after it */
        }
        if (ok) {
            memcpy(shown + n_bytes, text.ptr + at, n);
            n_bytes += n;
            n_columns += width;
        }
        at += n > 0 ? n : 1;
    }
    log_sink_show_status(shown, n_bytes, n_columns);
}
