/* What is to be written to a socket next: a list of pieces for one write. Small things are copied
 * together, large ones stay where they are. For the grpc_*.c files of this room only. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_OUTPUT_H
#define SLUICE_NET_TRANSPORT_GRPC_OUTPUT_H

#include <nghttp2/nghttp2.h>

#include "net/transport/grpc/send_queue.h"

enum { GRPC_OUTPUT_PIECES = 256, GRPC_OUTPUT_BYTES = 65536 };

struct grpc_output {
    struct piece pieces[GRPC_OUTPUT_PIECES];
    size_t n;
    size_t used; /* of bytes */
    size_t n_copied;
    char bytes[GRPC_OUTPUT_BYTES];
};

/* Empties it. */
static inline void grpc_output_clear(struct grpc_output *output) {
    output->n = output->used = output->n_copied = 0;
}
/* A few bytes, which must fit. */
void grpc_output_add_copy(struct grpc_output *output, const void *data, size_t n_bytes);
/* As much as fits of what nghttp2 has to say. Returns: its error, or 0. */
int grpc_output_collect(struct grpc_output *output, nghttp2_session *h2);
/* From nghttp2's send_data callback, while collecting: a DATA frame of its head (9 bytes) and
 * `n_bytes` that the queue has promised. Returns: false when there is no room for it now. */
bool grpc_output_add_data_frame(struct grpc_output *output, struct grpc_send_queue *queue,
                                struct grpc_write_batch *flight, const uint8_t *head,
                                size_t n_bytes);

#endif
