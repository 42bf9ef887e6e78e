/* What a worker writes to standard output and error: lines of the server's log with the model's
 * name. Their number in a second is limited; the last ones are kept for the error of a worker that
 * ends. */
#ifndef SLUICE_PYTHON_LINES_H
#define SLUICE_PYTHON_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/backend.h"

enum {
    LINES_BYTES = 1024, /* of a line; what is longer is cut */
    LINES_LAST = 3,     /* that are kept */
    LINES_PER_S = 20,
    LINES_BURST = 100, /* at once, after a quiet time */
};

struct lines {
    const sluice_host *host;
    const char *model;
    char line[LINES_BYTES];
    size_t n_bytes;
    char last[LINES_LAST][LINES_BYTES];
    size_t n_last; /* lines so far */
    uint64_t n_left_out;
    double allowed; /* lines that may be logged now */
    uint64_t refilled_ns;
};

void lines_init(struct lines *lines, const sluice_host *host, const char *model);
/* Adds what was read. */
void lines_add(struct lines *lines, const char *bytes, size_t n_bytes);
/* Logs one whole line, within the limit. */
void lines_log(struct lines *lines, sluice_log_level level, const char *text, size_t n_bytes);
/* The end of the output: what is left is a line, too. */
void lines_flush(struct lines *lines);
/* The last lines as one; "": none. */
void lines_print_last(const struct lines *lines, char *out, size_t n_bytes);
/* Copies a text of the worker's into one line of valid UTF-8, cut to `n_bytes` with its NUL. */
void lines_copy_text(const char *text, size_t text_bytes, char *out, size_t n_bytes);

#endif
