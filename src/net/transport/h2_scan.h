/* Scans the heads of all frames before nghttp2 gets them: which frame the next bytes belong to,
 * which streams the peer has ended, frames on such streams, and whether a header block is
 * incomplete. It is needed because nghttp2, with nghttp2_option_set_no_closed_streams, silently
 * drops HEADERS and DATA on streams that it has forgotten (RFC 9113, 5.1, "closed", demands an
 * error).
 *
 * Invariant: the state is a function of the peer's bytes alone. How they are split, what the server
 * sends and when it sends it do not change the state, because n_head and skip advance by the 9-byte
 * frame head and its 24-bit length (RFC 9113, 4.1) and by nothing else, as nghttp2's parser does.
 * The scan judges no frame: a frame that nghttp2 refuses ends the connection or its stream there.
 * in_fields and ends_fields tell whether a block of HEADERS and CONTINUATION is incomplete (RFC
 * 9113, 6.10: no other frame may come in between), which the header timeout needs.
 * h2_scan_nghttp2_test.c compares all of it with nghttp2's own state, at every split. Sans I/O. */
#ifndef SLUICE_NET_TRANSPORT_H2_SCAN_H
#define SLUICE_NET_TRANSPORT_H2_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

/* ---- ended streams --------------------------------------------------------------------------- */

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
 * forgotten; frames on them are ignored. */
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

/* ---- the walk from frame to frame ------------------------------------------------------------ */

enum { H2_FRAME_HEAD_BYTES = 9 };

/* The head of a frame (RFC 9113, 4.1). */
struct h2_frame {
    uint32_t n_bytes; /* of its payload */
    int32_t stream_id;
    uint8_t type, flags;
};

/* Zeroed memory is the initial state. */
struct h2_walk {
    struct h2_frame frame; /* the current one, or the last */
    size_t skip;           /* bytes left of it */
    unsigned char head[H2_FRAME_HEAD_BYTES];
    unsigned char n_head; /* bytes of the next head, if that is incomplete */
};

/* Walks over the next bytes after the preface. */
void h2_walk_add(struct h2_walk *walk, struct str data);

/* ---- the scan -------------------------------------------------------------------------------- */

/* Zeroed memory is the initial state. */
struct h2_scan {
    struct h2_closed_streams ended;
    struct h2_walk walk;
    bool in_fields;   /* the current frame, or the last one, holds header fields */
    bool ends_fields; /* ... and it has END_HEADERS */
};

/* Scans the next bytes after the preface. Returns: how many of them come before the first HEADERS
 * or DATA frame on a stream that the peer had ended, which is a connection error, STREAM_CLOSED:
 * nothing after them is processed, and nothing more is scanned; data.len when there is none. */
size_t h2_scan_add(struct h2_scan *scan, struct str data);
/* Returns: the length of the frames at the front of the next bytes, the rest of the current one
 * included, as many as have `n_least` bytes together; data.len when there are fewer. */
size_t h2_scan_find_frame_end(const struct h2_scan *scan, struct str data, size_t n_least);
/* Returns: whether a header block has begun and is incomplete. */
bool h2_scan_is_in_fields(const struct h2_scan *scan);

#endif
