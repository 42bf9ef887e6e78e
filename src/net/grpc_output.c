/* Bytes out: what nghttp2 has to say and the bytes of messages, as one list of pieces for one
 * write. Small things are copied together, large ones stay where they are. */
#include "base/metric.h"
#include "net/grpc_session.h"

enum {
    FRAME_HEAD_BYTES = 9,
    /* The most that nghttp2 gives at once: a frame of headers. */
    MOST_CONTROL_BYTES = 16384 + FRAME_HEAD_BYTES,
};

static void add_copy(struct grpc_output *output, const void *data, size_t n_bytes) {
    char *at = output->bytes + output->used;
    memcpy(at, data, n_bytes);
    struct piece *last = output->n > 0 ? &output->pieces[output->n - 1] : NULL;
    if (last && (const char *)last->data + last->n_bytes == at) {
        last->n_bytes += n_bytes;
    } else {
        output->pieces[output->n++] = (struct piece){at, n_bytes};
    }
    output->used += n_bytes;
    output->n_bytes += n_bytes;
}

static bool has_room(const struct grpc_output *output) {
    return output->n + 2 <= GRPC_OUTPUT_PIECES &&
           output->used + MOST_CONTROL_BYTES <= GRPC_OUTPUT_BYTES;
}

/* Adds the next bytes of the stream's messages, at most `most`. Returns: how many. */
static size_t add_message(struct grpc_output *output, struct grpc_stream *stream, size_t most) {
    struct piece next = grpc_send_next(stream);
    size_t n = next.n_bytes < most ? next.n_bytes : most;
    if (n <= GRPC_OUTPUT_COPY && output->used + n <= GRPC_OUTPUT_BYTES) {
        add_copy(output, next.data, n);
    } else {
        output->pieces[output->n++] = (struct piece){next.data, n};
        output->n_bytes += n;
    }
    grpc_send_advance(stream, n);
    return n;
}

/* How many pieces the next `n_bytes` of the stream may need, as long as it is few. */
static bool fits(const struct grpc_output *output, const struct grpc_stream *stream,
                 size_t n_bytes) {
    size_t room = GRPC_OUTPUT_PIECES - output->n;
    const struct grpc_outgoing *outgoing = stream->out;
    size_t piece = stream->out_piece, at = stream->out_at, n = 1;
    while (n_bytes > 0) {
        if (++n > room) {
            return false;
        }
        size_t left = outgoing->pieces[piece].n_bytes - at;
        n_bytes -= left < n_bytes ? left : n_bytes;
        at = 0;
        if (++piece == outgoing->n_pieces) {
            piece = 0;
            outgoing = outgoing->next;
        }
    }
    return true;
}

bool grpc_output_data(struct grpc_output *output, struct grpc_stream *stream, const uint8_t *head,
                      size_t n_bytes) {
    /* A frame that does not fit into an empty output never will: pieces so small are the method's
     * own doing, and a frame has at most 16 KiB. */
    if (!has_room(output) || (output->n > 0 && !fits(output, stream, n_bytes))) {
        return false;
    }
    add_copy(output, head, FRAME_HEAD_BYTES);
    while (n_bytes > 0) {
        if (output->n == GRPC_OUTPUT_PIECES) { /* the last piece takes what is copied */
            return false;
        }
        n_bytes -= add_message(output, stream, n_bytes);
    }
    return true;
}

bool grpc_session_output(struct grpc_session *session, struct grpc_output *output) {
    output->n = output->used = output->n_bytes = 0;
    session->output = output;
    while (has_room(output)) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(session->h2, &data);
        if (n < 0) {
            session->failed = true;
        }
        if (n <= 0) {
            break;
        }
        add_copy(output, data, (size_t)n);
    }
    session->output = NULL;
    session->writing = output->n > 0;
    return session->writing;
}

void grpc_session_written(struct grpc_session *session) {
    struct grpc_outgoing *sent = session->sent;
    session->sent = NULL;
    session->writing = false;
    for (struct grpc_outgoing *at = sent; at; at = at->next) {
        struct grpc_stream *stream = at->stream;
        bool told = !stream->out && stream->begun && !stream->finished && !stream->call.gone &&
                    stream->call.method->streams;
        if (told) {
            grpc_stream_step(stream, GRPC_WRITABLE);
        }
    }
    grpc_outgoing_release(sent);
    session->core->ask_turn(session->core, session); /* more to collect, or to sweep */
}

bool grpc_session_has_output(const struct grpc_session *session) {
    return session->h2 && !session->writing && nghttp2_session_want_write(session->h2);
}
