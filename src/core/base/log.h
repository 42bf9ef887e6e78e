/* The log: one line for each event, to standard error, as text or as JSON (`--log-format`). A line
 * has a level, an event in words, and named values. A line is one write and never torn. When
 * standard error is not read, a line is dropped after a short wait (log_sink.h).
 *
 * Clients can cause lines, so those of one event are limited: a burst, then a number per second.
 * The next line has the number of suppressed ones. Debug turns the limit off.
 *
 * Thread: any. */
#ifndef SLUICE_CORE_BASE_LOG_H
#define SLUICE_CORE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_TEXT, LOG_JSON };

/* Process-wide; called before threads start. Turns on the levels up to `level`. */
void log_configure(enum log_level level, enum log_format format);
/* Returns: the format; LOG_TEXT until log_configure. */
enum log_format log_format(void);
/* Turns on colours of the levels in text lines, for a terminal; called before threads start. */
void log_colour_set(bool on);
bool log_enabled(enum log_level level);

/* Turns one level on or off, independently of the others; LOG_DEBUG follows log_verbose_set
 * instead. */
void log_level_set(enum log_level level, bool on);
/* Turns LOG_DEBUG off (0) or on. */
void log_verbose_set(uint32_t verbose);
/* Returns: the value last set by log_verbose_set. */
uint32_t log_verbose(void);
/* Which name clients are shown for the form of times, "ISO8601" or "default": it is the same form.
 * Thread: any. */
void log_iso8601_set(bool on);
bool log_iso8601(void);

/* One named value of a line. Text is escaped for the log's format. */
struct log_field {
    const char *name;
    enum { LOG_FIELD_STR, LOG_FIELD_U64, LOG_FIELD_I64, LOG_FIELD_F64 } kind;
    struct str str;
    uint64_t u64;
    int64_t i64;
    double f64;
};
#define LOG_STR(field_name, value)                                                                 \
    ((struct log_field){.name = (field_name), .kind = LOG_FIELD_STR, .str = (value)})
#define LOG_CSTR(field_name, value) LOG_STR(field_name, str_of(value))
#define LOG_U64(field_name, value)                                                                 \
    ((struct log_field){.name = (field_name), .kind = LOG_FIELD_U64, .u64 = (value)})
#define LOG_I64(field_name, value)                                                                 \
    ((struct log_field){.name = (field_name), .kind = LOG_FIELD_I64, .i64 = (value)})
#define LOG_F64(field_name, value)                                                                 \
    ((struct log_field){.name = (field_name), .kind = LOG_FIELD_F64, .f64 = (value)})

enum { LOG_EVENT_BURST_LINES = 1000, LOG_EVENT_LINES_PER_SECOND = 10 };

/* `event` is a string that stays: its address identifies what is limited. */
void log_write(enum log_level level, const char *event, const struct log_field *fields, unsigned n);
/* log_event(LOG_INFO, "model loaded", LOG_STR("model", name), LOG_U64("version", v)); at least one
 * field. */
#define log_event(level, event, ...)                                                               \
    log_write(                                                                                     \
        (level), (event), (const struct log_field[]){__VA_ARGS__},                                 \
        (unsigned)(sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field)))
/* A line without fields. */
void log_message(enum log_level level, const char *event);
/* A line, at the level of a warning, of a report that an operator asked for: without the limit. */
void log_report(const char *event, struct str text);

/* A line of another process that is in this form already, written as it is, without the limit. */
void log_pass(struct str text);

/* Shows a line below the log of a terminal until the next line of the log, which takes its place;
 * an empty one removes it. Control characters are left out, and what is wider than `columns`.
 * Thread: any. */
void log_status_show(struct str text, unsigned columns);

#endif
