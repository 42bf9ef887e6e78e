/* Parses the Prometheus text format (and OpenMetrics'), in chunks that may be cut anywhere, and
 * reports the series of wanted names. Only an incomplete line is buffered, with a fixed capacity; a
 * line that does not fit or is malformed is left out and counted, so that it does not spoil the
 * page. Sans I/O.
 *
 * Thread: one at a time. Clauses: Prometheus, "Text-based format"; OpenMetrics 1.0, of which
 * exemplars and EOF are ignored. */
#ifndef SLUICE_CODEC_PROMETHEUS_SERIES_H
#define SLUICE_CODEC_PROMETHEUS_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/str.h"

/* One line: a value of one series. Views of the line, valid during `on_series`. */
struct series {
    struct str name;
    struct str labels; /* the text between the braces, well-formed; empty: none */
    double value;      /* may be NaN or infinite */
    bool has_time;
    double time; /* as written: milliseconds in one format, seconds in the other */
};

/* A label as written: `value` is without its quotes, and still escaped. */
struct series_label {
    struct str name;
    struct str value;
};

/* Takes the next label from the front of `labels`. Returns: false after the last. */
bool series_label_next(struct str *labels, struct series_label *out);
/* Appends the unescaped value of a label to `out`. Returns: false when the label is absent. */
bool series_label_print(const struct series *series, struct str name, struct buf *out);
/* Is there such a label with this value (given unescaped)? */
bool series_label_is(const struct series *series, struct str name, struct str value);

enum { SERIES_LINE_BYTES = 16384, SERIES_MAX_NAMES = 32 };

struct series_reader {
    /* Set by the caller: */
    const struct str *names; /* of wanted series */
    size_t n_names;          /* at most SERIES_MAX_NAMES */
    void (*on_series)(void *user, const struct series *series);
    void *user;
    /* Results: */
    uint64_t n_bytes, n_lines;
    uint64_t n_malformed; /* lines of wanted names that could not be parsed */
    uint64_t n_too_long;  /* lines of wanted names that did not fit the buffer */
    /* For each character, the names that have it at differ_offset, the first offset where names
     * differ, and at the next one, a bit each; a shorter name allows every character there. */
    size_t differ_offset;
    uint32_t first[UINT8_MAX + 1], second[UINT8_MAX + 1];
    /* State: */
    size_t n_line;
    bool skipping; /* the rest of this line is ignored */
    char line[SERIES_LINE_BYTES];
};

/* Starts parsing; the caller's fields are set. */
void series_reader_init(struct series_reader *reader);
/* Parses the next chunk; calls on_series for each series of a wanted name. */
void series_reader_feed(struct series_reader *reader, struct str chunk);
/* Ends parsing; the last line may be without a newline. */
void series_reader_finish(struct series_reader *reader);

#endif
