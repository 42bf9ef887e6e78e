/* Which of a connection's latest 256 client streams the peer has ended (END_STREAM, RST_STREAM).
 *
 * Invariant: for a stream id among the latest 256 up to `newest`, the bit is set exactly if a frame
 * of the peer has ended the stream. `newest` is the highest id for which HEADERS arrived, which is
 * nghttp2's last received stream id. h2_scan maintains it, from the frames' heads alone:
 * - HEADERS with a higher odd id opens a stream (RFC 9113, 5.1.1): its bit, and those of skipped
 *   ids, are cleared.
 * - HEADERS or DATA with END_STREAM, and RST_STREAM, set the bit.
 *
 * Why it equals nghttp2's state: nghttp2 refuses HEADERS and DATA on a stream that has
 * NGHTTP2_SHUT_RD, which it sets on the same events; but it remembers closed streams only as whole
 * objects, together with the open ones as many as SETTINGS_MAX_CONCURRENT_STREAMS, which takes 290
 * kB per busy connection (measured with the default of 1,000 streams). So the server sets
 * nghttp2_option_set_no_closed_streams and keeps one bit per stream here. One difference: nghttp2
 * ignores what the peer sends on a stream that the server has reset or refused, also the peer's end
 * of it; the bit is set.
 *
 * Clause: RFC 9113, 5.1, "closed": HEADERS or DATA after the peer's END_STREAM or RST_STREAM is an
 * error STREAM_CLOSED, which ends the connection. A stream that only the server has reset has no
 * bit: frames on it may have been in flight and are ignored. Older streams than the latest 256 are
 * forgotten; frames on them are ignored. Sans I/O. */
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
/* The peer has ended this stream. */
void h2_closed_streams_add(struct h2_closed_streams *ended, int32_t id);
/* Returns: whether the peer has ended it; false for an open, a forgotten, or a never opened
 * stream. */
bool h2_closed_streams_has(const struct h2_closed_streams *ended, int32_t id);

#endif
