/* The rest of a frame is a part of the body; after it the head of the next frame is expected. */
#include "net/transport/grpc/read_place.h"

#include <assert.h>

char *grpc_read_place_find(struct grpc_read_place *place, const struct h2_walk *walk,
                           struct grpc_receiver *in, size_t *n_bytes) {
    assert(grpc_read_place_is_possible(walk));
    place->at = NULL;
    if (walk->skip > 0) {
        place->at = grpc_receiver_read_buffer(in, n_bytes);
        *n_bytes = place->at && *n_bytes > walk->skip ? walk->skip : *n_bytes;
    } else if (grpc_receiver_n_left(in) >= GRPC_PLACE_MIN_BYTES) {
        place->at = place->head;
        *n_bytes = H2_FRAME_HEAD_BYTES - walk->n_head;
    }
    return place->at;
}
