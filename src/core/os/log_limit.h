/* Limits the log lines per second that peers can cause. Suppressed lines are counted, and the next
 * line contains the count.
 *
 * Thread: one at a time (each worker has its own). */
#ifndef SLUICE_CORE_OS_LOG_LIMIT_H
#define SLUICE_CORE_OS_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { LOG_LIMIT_LINES = 10 }; /* per second */

/* Zeroed memory is the initial state. */
struct log_limit {
    uint64_t second;
    unsigned n_lines;
    uint64_t n_suppressed; /* since the last line; its writer sets it to 0 */
};

/* Returns: whether another line may be written now; counts it either way. */
bool log_limit_allow(struct log_limit *limit);

#endif
