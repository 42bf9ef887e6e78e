/* Scans the heads of all frames in front of nghttp2: which streams begin, which the peer resets,
 * frames after a stream's end, and whether a header block is incomplete. It is needed because
 * nghttp2, with nghttp2_option_set_no_closed_streams, silently drops HEADERS and DATA on streams
 * that it has forgotten (RFC 9113, 5.1, "closed", demands an error).
 *
 * Invariant: after each h2_scan_add of the bytes that nghttp2 gets too, n_head and skip are at the
 * same place of the same frame as nghttp2's parser. Both advance by the 9-byte frame head and its
 * 24-bit length (RFC 9113, 4.1) and by nothing else, so every split of the input gives the same
 * state. The scan judges no frame: a frame that nghttp2 refuses ends the connection or its stream
 * there, and a bit that it may have set for that stream agrees with h2_closed_streams.h.
 * in_fields and ends_fields tell whether a block of HEADERS and CONTINUATION is incomplete (RFC
 * 9113, 6.10: no other frame may come in between), which the header timeout needs. Sans I/O. */
#ifndef SLUICE_NET_TRANSPORT_H2_SCAN_H
#define SLUICE_NET_TRANSPORT_H2_SCAN_H

#include <stddef.h>

#include "core/base/str.h"
#include "net/transport/h2_closed_streams.h"

enum { H2_FRAME_HEAD_BYTES = 9 };

/* Zeroed memory is the initial state. When a stream closes that the peer has ended, the session
 * adds it to `ended`. */
struct h2_scan {
    struct h2_closed_streams ended;
    size_t skip; /* bytes left of the current frame */
    unsigned char head[H2_FRAME_HEAD_BYTES];
    unsigned char n_head;
    bool in_fields;   /* the current frame, or the last one, holds header fields */
    bool ends_fields; /* ... and it has END_HEADERS */
};

/* Scans the next bytes after the preface. Returns: false when they contain HEADERS or DATA on a
 * stream that the peer had ended: a connection error, STREAM_CLOSED. */
bool h2_scan_add(struct h2_scan *scan, struct str data);
/* Returns: whether a header block has begun and is incomplete. */
bool h2_scan_is_in_fields(const struct h2_scan *scan);

#endif
