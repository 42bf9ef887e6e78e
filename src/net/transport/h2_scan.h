/* A look at the heads of all frames that come, in front of nghttp2: which streams begin, which are
 * reset, what is sent behind a stream's end, and where a block of header fields is not complete.
 * nghttp2, told to forget streams that are closed, drops HEADERS and DATA on those, and says
 * nothing of it. Sans I/O. */
#ifndef SLUICE_NET_TRANSPORT_H2_SCAN_H
#define SLUICE_NET_TRANSPORT_H2_SCAN_H

#include <stddef.h>

#include "core/base/str.h"
#include "net/transport/h2_closed_streams.h"

enum { H2_FRAME_HEAD_BYTES = 9 };

/* Zeroed memory is in front of the first frame. Who sees a stream close that the peer has ended
 * adds it to `ended`. */
struct h2_scan {
    struct h2_closed_streams ended;
    size_t skip; /* of the frame at hand, still to come */
    unsigned char head[H2_FRAME_HEAD_BYTES];
    unsigned char n_head;
    bool in_fields;   /* the frame at hand, or the last one, holds header fields */
    bool ends_fields; /* ... the last of their block */
};

/* The next bytes behind the preface. Returns: false when HEADERS or DATA are among them, on a
 * stream that the peer had ended: an error of the connection, STREAM_CLOSED. */
bool h2_scan_add(struct h2_scan *scan, struct str data);
/* Has a block of header fields begun that is not complete? */
bool h2_scan_is_in_fields(const struct h2_scan *scan);

#endif
