/* Bytes out: what nghttp2 has to say and the bytes of messages, as one list of pieces for one
 * write. Small things are copied together, large ones stay where they are. */
#include <assert.h>
#include <string.h>

#include "base/metric.h"
#include "loop/clock.h"
#include "net/grpc_session.h"

enum {
    FRAME_HEAD_BYTES = 9,
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

static void add_copy(struct grpc_output *output, const void *data, size_t n_bytes) {
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

bool grpc_output_data(struct grpc_output *output, struct grpc_stream *stream, const uint8_t *head,
                      size_t n_bytes) {
    if (!has_room(output)) {
        return false;
    }
    assert(n_bytes == stream->promised && n_bytes + FRAME_HEAD_BYTES <= FRAME_BYTES);
    add_copy(output, head, FRAME_HEAD_BYTES);
    while (n_bytes > 0) {
        struct piece piece = grpc_send_next(stream);
        piece.n_bytes = piece.n_bytes < n_bytes ? piece.n_bytes : n_bytes;
        if (piece.n_bytes <= SMALL_BYTES) {
            add_copy(output, piece.data, piece.n_bytes);
            output->n_copied += piece.n_bytes;
        } else {
            output->pieces[output->n++] = piece;
        }
        grpc_send_advance(stream, piece.n_bytes);
        n_bytes -= piece.n_bytes;
    }
    grpc_stream_await(stream); /* it was taken: the time begins anew */
    return true;
}

static void collect(struct grpc_session *session, struct grpc_output *output) {
    while (has_room(output)) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(session->h2, &data);
        if (n < 0) {
            grpc_session_fail(session, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror((int)n));
        }
        if (n <= 0) {
            break;
        }
        assert(n <= FRAME_BYTES);
        add_copy(output, data, (size_t)n);
    }
}

bool grpc_session_output(struct grpc_session *session, struct grpc_output *output) {
    struct grpc_core *core = session->core;
    assert(!core->running && !session->writing);
    output->n = output->used = output->n_copied = 0;
    grpc_session_tell(session);
    core->running = true;
    core->now_ns = clock_now_ns();
    session->output = output;
    if (session->plain.len > 0) {
        add_copy(output, session->plain.ptr, session->plain.len);
        session->plain_said = true;
    } else {
        collect(session, output);
    }
    session->output = NULL;
    core->running = false;
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)output->n_copied);
    session->writing = output->n > 0;
    return session->writing;
}

void grpc_session_written(struct grpc_session *session) {
    struct grpc_outgoing *sent = session->sent;
    session->sent = NULL;
    session->writing = false;
    grpc_send_left(sent);
    grpc_core_ask(session->core, session); /* more to collect, or over */
}
