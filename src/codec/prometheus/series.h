/* The Prometheus text format (and OpenMetrics'), read as it comes: chunks may be cut anywhere, and
 * of all its lines only the series of wanted names are looked at. Nothing is kept but the line that
 * is not complete, in a fixed room; what does not fit there, or is malformed, is left out and
 * counted: one bad line does not spoil a page. Sans I/O.
 *
 * Thread: one at a time. Clauses: Prometheus, "Text-based format"; OpenMetrics 1.0, of which
 * exemplars and EOF are passed over. */
#ifndef SLUICE_CODEC_PROMETHEUS_SERIES_H
#define SLUICE_CODEC_PROMETHEUS_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/str.h"

/* One line: a value of one series. Views of the line, for as long as `found` is being called. */
struct series {
    struct str name;
    struct str labels; /* what is between the braces, well-formed; empty: none */
    double value;      /* perhaps no number, or infinite */
    bool has_time;
    double time; /* as it is there: milliseconds in one format, seconds in the other */
};

/* A label as it stands there: `value` is without its quotes, and still escaped. */
struct series_label {
    struct str name;
    struct str value;
};

/* Goes through labels, from the front of `labels`. Returns: false behind the last. */
bool series_label_next(struct str *labels, struct series_label *out);
/* The value of a label, unescaped, appended to `out`. Returns: false when there is none. */
bool series_label_print(const struct series *series, struct str name, struct buf *out);
/* Is a label there with this value (given unescaped)? */
bool series_label_is(const struct series *series, struct str name, struct str value);

enum { SERIES_LINE_BYTES = 16384, SERIES_MAX_NAMES = 32 };

struct series_reader {
    /* The caller's: */
    const struct str *names; /* of wanted series */
    size_t n_names;          /* at most SERIES_MAX_NAMES */
    void (*on_series)(void *user, const struct series *series);
    void *user;
    /* What came of it: */
    uint64_t n_bytes, n_lines;
    uint64_t n_malformed; /* of wanted names, lines that could not be read */
    uint64_t n_too_long;  /* the same, lines that did not fit */
    /* Which names have this character, a bit each, where the first of them differ, and behind that;
     * a name that is shorter has every character there. */
    size_t differ_offset;
    uint32_t first[UINT8_MAX + 1], second[UINT8_MAX + 1];
    /* How far it is: */
    size_t n_line;
    bool skipping; /* the rest of this line is not wanted */
    char line[SERIES_LINE_BYTES];
};

/* Starts; the caller's fields are set. */
void series_reader_init(struct series_reader *reader);
void series_reader_feed(struct series_reader *reader, struct str chunk);
/* No more comes: a last line may be without its end. */
void series_reader_finish(struct series_reader *reader);

#endif
