/* Where the lines of the log go: standard error. A reader that does not read costs a short wait;
 * then lines are dropped and counted, and the first line that is taken again is preceded by one
 * with their number. While a slow reader takes lines, threads wait for their turn, one line each,
 * and no line is dropped.
 *
 * Thread: any. */
#ifndef SLUICE_CORE_BASE_LOG_SINK_H
#define SLUICE_CORE_BASE_LOG_SINK_H

#include <stddef.h>
#include <stdint.h>

enum {
    LOG_SINK_WAIT_MS = 20,    /* for a reader, */
    LOG_SINK_PAUSE_MS = 1000, /* and no further wait for so long */
};

/* Writes a line, newline included, of at most PIPE_BUF bytes, or drops it. `print_dropped` prints
 * the line about `n` dropped ones to `out`, which has PIPE_BUF bytes, and returns its length. */
void log_sink_write(const char *line, size_t n_bytes,
                    size_t (*print_dropped)(char *out, uint64_t n));

/* Shows `text`, one line of at most LOG_SINK_STATUS_BYTES of printable characters, until a line is
 * written, which takes its place; 0 bytes remove it. `n_columns`: its width at most, not over
 * `n_bytes`. The cursor stays at the start of the line. For a terminal. */
enum { LOG_SINK_STATUS_BYTES = 240 };
void log_sink_show_status(const char *text, size_t n_bytes, size_t n_columns);

#endif
