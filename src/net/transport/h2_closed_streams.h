/* Which of a connection's latest 256 client streams the peer has ended (END_STREAM, RST_STREAM).
 *
 * Invariant: for a stream id among the latest 256 up to `newest`, the bit is set exactly if the
 * peer has ended the stream and it is closed. `newest` is the highest id for which HEADERS arrived,
 * which is nghttp2's last received stream id. Three rules maintain it:
 * - HEADERS with a higher odd id opens a stream (RFC 9113, 5.1.1): its bit, and those of skipped
 *   ids, are cleared.
 * - RST_STREAM from the peer closes the stream at once: h2_scan sets the bit when the frame's head
 *   passes, before nghttp2 processes the frame.
 * - END_STREAM closes a stream only when the server has ended it too: the session sets the bit in
 *   nghttp2's close callback. Until then nghttp2 has the stream and checks it itself.
 * A stream that only the server has reset has no bit: frames that were in flight are ignored.
 *
 * Why it equals nghttp2's state: nghttp2 refuses HEADERS and DATA on a closed stream that has
 * NGHTTP2_SHUT_RD, which it sets on the same two events; but it remembers closed streams only as
 * whole objects, together with the open ones as many as SETTINGS_MAX_CONCURRENT_STREAMS. That takes
 * hundreds of kilobytes per busy connection, and a stream table too large for the nearer caches, so
 * the server sets nghttp2_option_set_no_closed_streams and keeps one bit per stream here. One
 * difference: RST_STREAM on a stream that the server has reset before sets the bit; nghttp2 ignores
 * it.
 *
 * Clause: RFC 9113, 5.1, "closed": HEADERS or DATA after the peer's END_STREAM or RST_STREAM is an
 * error STREAM_CLOSED, which ends the connection. Older streams than the latest 256 are forgotten;
 * frames on them are ignored, as the RFC permits for frames that may have been in flight. Sans
 * I/O. */
#ifndef SLUICE_NET_TRANSPORT_H2_CLOSED_STREAMS_H
#define SLUICE_NET_TRANSPORT_H2_CLOSED_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

enum { H2_CLOSED_STREAMS = 256 };

/* Zeroed memory is empty. */
struct h2_closed_streams {
    int32_t newest; /* highest id that the peer has opened; its ids are odd and rise */
    uint64_t bits[H2_CLOSED_STREAMS / 64];
};

/* The peer opens a stream: forgets those 256 or more before it. `id` is higher than any before. */
void h2_closed_streams_begin(struct h2_closed_streams *ended, int32_t id);
/* The peer has ended this stream, and it is closed or about to be. */
void h2_closed_streams_add(struct h2_closed_streams *ended, int32_t id);
/* Returns: whether the peer has ended it; false for an open, a forgotten, or a never opened
 * stream. */
bool h2_closed_streams_has(const struct h2_closed_streams *ended, int32_t id);

#endif
