/* The rate at which a client sends a body or a message, looked at over consecutive windows: an
 * average since the start would let a body whose last bytes trickle hold its memory for hours.
 *
 * Thread: any, one at a time. */
#ifndef SLUICE_NET_SERVER_RECEIVE_WINDOW_H
#define SLUICE_NET_SERVER_RECEIVE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/event/timer.h"

struct receive_window {
    uint64_t since_ns; /* 0: no window has begun */
    uint64_t last_ns;  /* when bytes were last received */
    uint64_t n_bytes;  /* received since the window began */
};

/* Counts `n_bytes` received now. `length_ns` is also the longest pause, after which the caller's
 * timer ends the request: where bytes follow a longer one, this process stood still, and a new
 * window begins. Returns: whether a window of at least `length_ns` has ended in which less than
 * `min_rate` bytes per second came; false without a rate or a length. */
static inline bool receive_window_add(struct receive_window *window, uint64_t n_bytes,
                                      uint64_t now_ns, uint64_t min_rate, uint64_t length_ns) {
    uint64_t elapsed_ns = now_ns - window->since_ns;
    bool stood_still = timer_is_late(window->last_ns + length_ns, now_ns);
    window->n_bytes += n_bytes;
    window->last_ns = now_ns;
    if (window->since_ns > 0 && elapsed_ns <= length_ns) {
        return false;
    }
    bool slow = window->since_ns > 0 && !stood_still && min_rate > 0 && length_ns > 0 &&
                (double)window->n_bytes < (double)min_rate * ((double)elapsed_ns / 1e9);
    *window = (struct receive_window){.since_ns = now_ns, .last_ns = now_ns};
    return slow;
}

#endif
