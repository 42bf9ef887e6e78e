/* Counts the lines of the current second. */
#include "core/os/log_limit.h"

#include "core/event/clock.h"

bool log_limit_allow(struct log_limit *limit) {
    uint64_t second = clock_now_ns() / 1000000000u;
    if (second != limit->second) {
        limit->second = second;
        limit->n_lines = 0;
    }
    if (limit->n_lines == LOG_LIMIT_LINES) {
        limit->n_suppressed++;
        return false;
    }
    limit->n_lines++;
    return true;
}
