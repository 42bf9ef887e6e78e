/* Messages that a stream sends: queued by the method, reserved by nghttp2 as windows allow,
 * collected in place. */
#include <assert.h>

#include "core/base/compiler.h"
#include "net/server/grpc/session.h"

/* ---- queueing -------------------------------------------------------------------------------- */

void grpc_send_resume(struct grpc_stream *stream) {
    if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->session->h2, stream->id);
    }
}

/* The status needs no window: where all queued bytes have a frame, the trailers are submitted at
 * once, without waiting for nghttp2's data source, which runs only when a window is open. nghttp2
 * sends a frame that is begun before all others. */
void grpc_send_status(struct grpc_stream *stream) {
    if (stream->out.n_bytes > stream->out.n_reserved) {
        grpc_send_resume(stream);
    } else if (grpc_head_submit_trailers(stream) != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, "out of memory for an answer");
    }
}

/* A message was queued. */
static void on_queued(struct grpc_stream *stream) {
    if (stream->response_state == GRPC_RESPONSE_NONE) {
        grpc_stream_set_response_state(stream, GRPC_RESPONSE_OPEN);
        grpc_head_submit(stream, false);
    } else {
        grpc_send_resume(stream);
    }
    grpc_stream_update_timer(stream);
    grpc_core_schedule_write(stream->core, stream->session);
}

/* A unary call's one message lives in the call's arena; a streaming call may send any number. */
static struct grpc_send_queue_options send_options(const struct grpc_call *call) {
    const struct grpc_stream *stream = (const struct grpc_stream *)call;
    return (struct grpc_send_queue_options){.arena = call->method->streams ? NULL : call->arena,
                                            .coding = stream->answer_coding,
                                            .compression_level =
                                                stream->core->options->limits.compression_level};
}

static void send_message(struct grpc_call *call, const struct grpc_send_queue_options *options,
                         const struct piece *pieces, size_t n_pieces, void (*release)(void *user),
                         void *user) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    bool wanted = !call->is_cancelled && !stream->reset_submitted;
    assert(stream->method_state == GRPC_METHOD_ACTIVE);
    if (wanted && grpc_send_queue_push(&stream->out, options, pieces, n_pieces, release, user)) {
        on_queued(stream);
        return;
    }
    if (release) {
        release(user);
    }
    if (wanted) { /* a message is missing; the method is notified when the stream is closed */
        stream->reset_submitted = true;
        nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_INTERNAL_ERROR);
        grpc_core_schedule_write(stream->core, stream->session);
    }
}

void grpc_send(struct grpc_call *call, const struct piece *pieces, size_t n_pieces,
               void (*release)(void *user), void *user) {
    struct grpc_send_queue_options options = send_options(call);
    send_message(call, &options, pieces, n_pieces, release, user);
}

bool grpc_compresses(const struct grpc_call *call, uint64_t n_bytes) {
    return ((const struct grpc_stream *)call)->answer_coding != HTTP_IDENTITY &&
           n_bytes >= GRPC_COMPRESS_FROM_BYTES;
}

bool grpc_compress(const struct grpc_call *call, struct arena *arena, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) {
    struct grpc_send_queue_options options = send_options(call);
    return grpc_compress_copy(&options, arena, pieces, n_pieces, out);
}

void grpc_send_compressed(struct grpc_call *call, const struct piece *piece,
                          void (*release)(void *user), void *user) {
    struct grpc_send_queue_options options = send_options(call);
    options.is_compressed = true;
    send_message(call, &options, piece, 1, release, user);
}

uint64_t grpc_now_ns(const struct grpc_call *call) {
    return grpc_core_now(((const struct grpc_stream *)call)->core);
}

size_t grpc_queued_bytes(const struct grpc_call *call) {
    return ((const struct grpc_stream *)call)->out.n_bytes;
}

size_t grpc_queued_messages(const struct grpc_call *call) {
    return ((const struct grpc_stream *)call)->out.n_messages;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* nghttp2 requests the size of the next frame; its send_data callback collects the bytes. */
static ssize_t on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct grpc_stream *stream = source->ptr;
    (void)h2, (void)id, (void)buf, (void)user;
    size_t n = grpc_send_queue_reserve(&stream->out, length);
    bool ends = n == stream->out.n_bytes && stream->response_state == GRPC_RESPONSE_ENDING;
    if (stream->is_exchange && ends) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | (n > 0 ? NGHTTP2_DATA_FLAG_NO_COPY : 0);
        return (ssize_t)n;
    }
    if (n == 0) { /* nothing queued; or the trailers are submitted */
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (ends) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (grpc_head_submit_trailers(stream) != 0) {
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)n;
}

nghttp2_data_provider grpc_send_provider(struct grpc_stream *stream) {
    return (nghttp2_data_provider){.source.ptr = stream, .read_callback = on_read};
}

/* ---- dropping and completing ----------------------------------------------------------------- */

void grpc_send_clear(struct grpc_stream *stream) {
    grpc_send_queue_clear(&stream->out, &stream->session->write_batch);
}

void grpc_send_on_message_sent(struct grpc_send_queue *queue) {
    struct grpc_stream *stream = CONTAINER_OF(queue, struct grpc_stream, out);
    if (queue->n_in_write > 0) {
        return;
    }
    if (grpc_stream_can_free(stream)) {
        grpc_stream_schedule_sweep(stream);
    } else if (!queue->first && stream->method_state == GRPC_METHOD_ACTIVE &&
               !stream->call.is_cancelled && stream->call.method->streams) {
        grpc_stream_emit(stream, GRPC_WRITABLE);
    }
}
