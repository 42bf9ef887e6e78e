/* Messages out: queued by the method, asked for by nghttp2 as windows allow, collected from where
 * their bytes lie. */
#include <assert.h>

#include "net/server/grpc/session.h"

/* ---- queueing -------------------------------------------------------------------------------- */

static void resume(struct grpc_stream *stream) {
    if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->session->h2, stream->id);
    }
}

/* The status needs no window: where nothing is queued in front of it, nghttp2's data source, which
 * is asked only while there is one, is not waited for. */
void grpc_send_end(struct grpc_stream *stream) {
    if (stream->out.n_bytes > 0) {
        resume(stream);
    } else if (grpc_head_submit_trailers(stream) != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, "no memory for an answer");
    }
}

/* Something is in the queue. */
static void queued(struct grpc_stream *stream) {
    stream->served = true;
    if (stream->answer == GRPC_ANSWER_NONE) {
        grpc_stream_set_answer(stream, GRPC_ANSWER_OPEN);
        grpc_head_submit(stream, false);
    } else {
        resume(stream);
    }
    grpc_stream_await(stream);
    grpc_core_ask(stream->core, stream->session);
}

/* The client would miss a message: it is told, and the method hears of it when the stream is
 * closed. */
static void reset(struct grpc_stream *stream) {
    stream->broken = true;
    nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id,
                              NGHTTP2_INTERNAL_ERROR);
    grpc_core_ask(stream->core, stream->session);
}

void grpc_send(struct grpc_call *call, const struct piece *pieces, size_t n_pieces,
               void (*release)(void *cookie), void *cookie) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    bool wanted = !call->gone && !stream->broken;
    /* A unary call's one message lives with the call; of others there may be any number. */
    struct grpc_queue_options options = {.arena = call->method->streams ? NULL : call->arena,
                                         .blocks = &stream->core->blocks,
                                         .coding = stream->answer_coding,
                                         .compression_level =
                                             stream->core->options->limits.compression_level};
    assert(stream->hold == GRPC_HELD);
    if (wanted && grpc_queue_add(&stream->out, &options, pieces, n_pieces, release, cookie)) {
        queued(stream);
        return;
    }
    if (release) {
        release(cookie);
    }
    if (wanted) {
        reset(stream);
    }
}

uint64_t grpc_now_ns(const struct grpc_call *call) {
    return grpc_core_now(((const struct grpc_stream *)call)->core);
}

size_t grpc_queued_bytes(const struct grpc_call *call) {
    return ((const struct grpc_stream *)call)->out.n_bytes;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* nghttp2 asks how much there is for a frame; the bytes follow through its send_data callback. */
static ssize_t on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct grpc_stream *stream = source->ptr;
    (void)h2, (void)id, (void)buf, (void)user;
    size_t n = grpc_queue_promise(&stream->out, length);
    bool ends = n == stream->out.n_bytes && stream->answer == GRPC_ANSWER_ENDING;
    if (n == 0) { /* for now; or the trailers are on their way */
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

/* ---- letting go ------------------------------------------------------------------------------ */

void grpc_send_drop(struct grpc_stream *stream) {
    grpc_queue_drop(&stream->out, &stream->session->flight);
}

void grpc_send_left(struct grpc_queue *queue) {
    struct grpc_stream *stream =
        (struct grpc_stream *)(void *)((char *)queue - offsetof(struct grpc_stream, out));
    if (queue->n_flying > 0) {
        return;
    }
    if (grpc_stream_is_over(stream)) {
        grpc_stream_ask_sweep(stream);
    } else if (!queue->first && stream->hold == GRPC_HELD && !stream->call.gone &&
               stream->call.method->streams) {
        grpc_stream_step(stream, GRPC_WRITABLE);
    }
}
