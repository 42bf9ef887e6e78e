/* Where a connection's next bytes are read to while it receives a large message: straight into the
 * message's body, so that its bytes are not copied. nghttp2 then gets them there, and passes on the
 * pointer that it got (grpc_receiver_add sees that they are in place). For servers and clients.
 *
 * What is read must not reach beyond the payload of the current DATA frame. So the head of the next
 * frame is read by itself, which pays from frames of GRPC_PLACE_MIN_BYTES on: both sides ask their
 * peers for larger ones (SETTINGS_MAX_FRAME_SIZE). Smaller frames, and those with padding, are read
 * into a buffer, many at a time, and copied. Sans I/O. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_READ_PLACE_H
#define SLUICE_NET_TRANSPORT_GRPC_READ_PLACE_H

#include <nghttp2/nghttp2.h>

#include "net/transport/grpc/receiver.h"
#include "net/transport/h2_scan.h"

#ifdef SLUICE_ARENA_EMULATE
enum { GRPC_PLACE_MIN_BYTES = 64 }; /* nearly all, for the address sanitizer and fuzzing */
#else
enum { GRPC_PLACE_MIN_BYTES = 65536 };
#endif

/* Of a connection. Zeroed memory is the initial state. */
struct grpc_read_place {
    char *at; /* what grpc_read_place_find has found last */
    char head[H2_FRAME_HEAD_BYTES];
};

/* Returns: whether the current frame, or the last one, is one whose payload is read in place. */
static inline bool grpc_read_place_is_possible(const struct h2_walk *walk) {
    const struct h2_frame *frame = &walk->frame;
    return frame->n_bytes >= GRPC_PLACE_MIN_BYTES && frame->type == NGHTTP2_DATA &&
           !(frame->flags & NGHTTP2_FLAG_PADDED);
}
/* `in`: the receiver of the frame's stream, which is open; requires grpc_read_place_is_possible.
 * Returns: where the next bytes belong; *n_bytes: at most so many. NULL: they are to be read into a
 * buffer. Nothing may be added to the receiver by other means until they are received. */
char *grpc_read_place_find(struct grpc_read_place *place, const struct h2_walk *walk,
                           struct grpc_receiver *in, size_t *n_bytes);

#endif
