/* How many lines a second a peer may cause in the log. What is left out is counted, and the next
 * line says how many.
 *
 * Thread: one at a time (each worker has its own). */
#ifndef SLUICE_CORE_OS_LOG_LIMIT_H
#define SLUICE_CORE_OS_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { LOG_LIMIT_LINES = 10 }; /* in a second */

/* Zeroed memory is the beginning. */
struct log_limit {
    uint64_t second;
    unsigned n_lines;
    uint64_t n_suppressed; /* since the last line; who writes one sets it to 0 */
};

/* May another line be written now? */
bool log_limit_allow(struct log_limit *limit);

#endif
