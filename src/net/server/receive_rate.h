/* The rate at which a client sends a body or a message, looked at over consecutive windows: an
 * average since the start would let a body whose last bytes trickle hold its memory for hours.
 *
 * Thread: any, one at a time. */
#ifndef SLUICE_NET_SERVER_RECEIVE_RATE_H
#define SLUICE_NET_SERVER_RECEIVE_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/event/timer.h"

struct receive_rate {
    uint64_t since_ns;    /* 0: no window has begun */
    uint64_t last_ns;     /* when bytes were last received */
    uint64_t n_bytes;     /* received since the window began */
    uint64_t n_conn_read; /* what the connection had read when the window began */
};

/* Of a connection that is not read in time, as much waits in its buffers: of a window of
 * SOCKET_RECEIVE_MIN_BYTES, half is payload, and what is left of it may be less than a segment. */
enum { RECEIVE_EXCUSED_BYTES = 4096 };

/* Counts `n_bytes` received now, of a connection that has read `n_conn_read` bytes so far.
 * `length_ns` is also the longest pause, after which the caller's timer ends the request: where
 * bytes follow a longer one, this process stood still, and a new window begins. Returns: 0, unless
 * a window of at least `length_ns` has ended in which less than `min_rate` bytes per second came.
 * Then that is this process's fault if so many bytes of the connection wait to be read: as many as
 * are missing, or RECEIVE_EXCUSED_BYTES; UINT64_MAX where the connection has read enough of other
 * things. */
static inline uint64_t receive_rate_add(struct receive_rate *rate, uint64_t n_bytes,
                                        uint64_t n_conn_read, uint64_t now_ns, uint64_t min_rate,
                                        uint64_t length_ns) {
    uint64_t elapsed_ns = now_ns - rate->since_ns;
    bool stood_still = timer_is_late(rate->last_ns + length_ns, now_ns);
    rate->n_bytes += n_bytes;
    rate->last_ns = now_ns;
    if (rate->since_ns > 0 && elapsed_ns <= length_ns) {
        return 0;
    }
    double needed = (double)min_rate * ((double)elapsed_ns / 1e9);
    double missing = needed - (double)rate->n_bytes;
    bool slow = rate->since_ns > 0 && !stood_still && length_ns > 0 && missing > 0;
    bool others_came = (double)(n_conn_read - rate->n_conn_read) >= needed;
    *rate =
        (struct receive_rate){.since_ns = now_ns, .last_ns = now_ns, .n_conn_read = n_conn_read};
    if (!slow) {
        return 0;
    }
    return others_came                       ? UINT64_MAX
           : missing < RECEIVE_EXCUSED_BYTES ? (uint64_t)missing + 1
                                             : RECEIVE_EXCUSED_BYTES;
}

#endif
