/* Bytes out: what nghttp2 has to say and the bytes of messages, in the order in which they
 * leave. */
#include "net/transport/grpc/output.h"

#include <assert.h>
#include <string.h>

#include "net/transport/h2_scan.h"

enum {
    /* The most that nghttp2 gives at once: a frame of 16 KiB, which is what it makes of DATA too,
     * with a few bytes to spare for a change of mind. */
    FRAME_BYTES = 16384 + 32,
    SMALL_BYTES = 1024, /* up to here a piece is copied */
    /* A frame of DATA is its head, large pieces, and between them small ones copied together. */
    FRAME_PIECES = 2 * (FRAME_BYTES / SMALL_BYTES) + 2,
};

static_assert((int)FRAME_BYTES <= (int)GRPC_OUTPUT_BYTES &&
                  (int)FRAME_PIECES <= (int)GRPC_OUTPUT_PIECES,
              "whatever a frame is made of, it fits an empty output");

static bool has_room(const struct grpc_output *output) {
    return output->n + FRAME_PIECES <= GRPC_OUTPUT_PIECES &&
           output->used + FRAME_BYTES <= GRPC_OUTPUT_BYTES;
}

void grpc_output_add_copy(struct grpc_output *output, const void *data, size_t n_bytes) {
    char *at = output->bytes + output->used;
    struct piece *last = output->n > 0 ? &output->pieces[output->n - 1] : NULL;
    memcpy(at, data, n_bytes);
    output->used += n_bytes;
    if (last && (const char *)last->data + last->n_bytes == at) {
        last->n_bytes += n_bytes;
    } else {
        output->pieces[output->n++] = (struct piece){at, n_bytes};
    }
}

bool grpc_output_add_data_frame(struct grpc_output *output, struct grpc_send_queue *queue,
                                struct grpc_write_batch *flight, const uint8_t *head,
                                size_t n_bytes) {
    if (!has_room(output)) {
        return false;
    }
    assert(n_bytes == queue->n_reserved && n_bytes + H2_FRAME_HEAD_BYTES <= FRAME_BYTES);
    grpc_output_add_copy(output, head, H2_FRAME_HEAD_BYTES);
    while (n_bytes > 0) {
        struct piece piece = grpc_send_queue_peek(queue);
        piece.n_bytes = piece.n_bytes < n_bytes ? piece.n_bytes : n_bytes;
        if (piece.n_bytes <= SMALL_BYTES) {
            grpc_output_add_copy(output, piece.data, piece.n_bytes);
            output->n_copied += piece.n_bytes;
        } else {
            output->pieces[output->n++] = piece;
        }
        grpc_send_queue_advance(queue, flight, piece.n_bytes);
        n_bytes -= piece.n_bytes;
    }
    return true;
}

int grpc_output_collect(struct grpc_output *output, nghttp2_session *h2) {
    while (has_room(output)) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(h2, &data);
        if (n <= 0) {
            return (int)n;
        }
        assert(n <= FRAME_BYTES);
        grpc_output_add_copy(output, data, (size_t)n);
    }
    return 0;
}
