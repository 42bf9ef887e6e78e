/* Messages of a stream. Out: queued by the method, reserved by nghttp2 as windows allow, collected
 * in place. In: assembled by the receiver and delivered when the method reads. */
#include <assert.h>

#include "core/base/compiler.h"
#include "net/server/grpc/session.h"

/* ---- queueing -------------------------------------------------------------------------------- */

static void resume_data(struct grpc_stream *stream) {
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
        resume_data(stream);
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
        resume_data(stream);
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

static bool is_unary(const struct grpc_stream *stream) {
    return !stream->call.method->streams;
}

/* Returns window for bytes that are dropped or stored: the peer may send more. */
static void consume_window(struct grpc_stream *stream, size_t n_bytes) {
    if (n_bytes > 0 && !stream->closed && !stream->remote_ended) {
        nghttp2_session_consume_stream(stream->session->h2, stream->id, n_bytes);
    }
}

/* ---- delivery to the method ------------------------------------------------------------------ */

/* What a message takes of a slice, besides the bytes that are decompressed: a method may read
 * thousands of small ones, which its window has allowed, one after the other. */
enum { MESSAGE_SLICE_BYTES = 512 };

static void use_slice(struct grpc_core *core, uint64_t n_bytes) {
    core->inflate_left -= n_bytes < core->inflate_left ? n_bytes : core->inflate_left;
}

/* The pending input continues with the next slice. */
static void wait_for_slice(struct grpc_stream *stream) {
    if (stream->in.pending_input.data && grpc_receiver_may_add(&stream->in) && !stream->inflating) {
        stream->inflating = true;
        TAILQ_INSERT_TAIL(&stream->core->inflating, stream, inflating_link);
        grpc_core_schedule_write(stream->core, stream->session);
    }
}

/* Continues with the pending input, as far as this iteration's slice allows. */
static enum status resume_pending(struct grpc_stream *stream, struct error *err) {
    struct grpc_core *core = stream->core;
    size_t n_used;
    uint64_t before = stream->in.n_inflated;
    enum status st = grpc_receiver_resume(&stream->in, core->inflate_left, &n_used, err);
    uint64_t n_taken = stream->in.n_inflated - before + (n_used > 0 ? MESSAGE_SLICE_BYTES : 0);
    use_slice(core, n_taken);
    consume_window(stream, n_used);
    if (st == ST_OK) {
        wait_for_slice(stream);
    }
    return st;
}

static void deliver_message(struct grpc_stream *stream) {
    stream->call.message = grpc_receiver_take(&stream->in);
    stream->message_delivered = true;
    grpc_stream_emit(stream, GRPC_MESSAGE);
    stream->call.message = NULL;
}

/* Everything was received and nothing is buffered. */
static bool is_at_end(const struct grpc_stream *stream) {
    return stream->remote_ended && stream->in.state < GRPC_RECEIVED &&
           !stream->in.pending_input.data;
}

static enum status check_end(const struct grpc_stream *stream, struct error *err) {
    if (!is_at_end(stream) || grpc_receiver_is_at_boundary(&stream->in)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_REQUEST, "the client ended the call within a message");
}

/* The message is malformed, too large, or there is no memory for it. */
static void reject_message(struct grpc_stream *stream, const struct error *why) {
    struct grpc_call *call = &stream->call;
    bool said = stream->method_state == GRPC_METHOD_ACTIVE && !call->is_cancelled &&
                call->method->on_message_rejected && call->method->on_message_rejected(call, why);
    assert(!said || stream->method_state == GRPC_METHOD_FINISHED);
    if (!said) {
        grpc_stream_cancel(stream, why);
    }
}

void grpc_receive_deliver(struct grpc_stream *stream) {
    struct error err;
    if (stream->delivering) {
        return; /* an outer frame continues */
    }
    stream->delivering = true;
    enum status st = resume_pending(stream, &err);
    while (st == ST_OK && stream->in.state == GRPC_RECEIVED && stream->in.n_reads_wanted > 0) {
        deliver_message(stream);
        st = resume_pending(stream, &err);
    }
    if (st == ST_OK) {
        st = check_end(stream, &err);
    }
    if (st != ST_OK) {
        reject_message(stream, &err);
    } else if (is_at_end(stream) && !stream->half_closed && stream->in.n_reads_wanted > 0) {
        stream->half_closed = true;
        stream->in.n_reads_wanted--;
        grpc_stream_emit(stream, GRPC_HALF_CLOSE);
    }
    stream->delivering = false;
}

void grpc_read(struct grpc_call *call) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    assert(!is_unary(stream));
    if (stream->in.state != GRPC_RECEIVING_STOPPED) {
        stream->in.n_reads_wanted++;
        if (!stream->in_callback) {
            grpc_receive_deliver(stream);
            grpc_stream_update_timer(stream);
            grpc_core_schedule_write(stream->core, stream->session); /* sends WINDOW_UPDATE */
        }
    }
}

/* ---- input from the connection --------------------------------------------------------------- */

static enum status too_many_error(struct error *err) {
    return error_set(err, ST_BAD_REQUEST, "this method takes one message, got more");
}

/* A message that is incomplete holds memory for its length. */
static enum status check_rate(struct grpc_stream *stream, size_t n_bytes, struct error *err) {
    const struct grpc_limits *limits = &stream->core->options->limits;
    if (stream->in.state >= GRPC_RECEIVED || grpc_receiver_is_at_boundary(&stream->in)) {
        stream->message_rate.since_ns = 0;
        return ST_OK;
    }
    const struct grpc_core *core = stream->core;
    struct grpc_session *session = stream->session;
    uint64_t n_excusing =
        receive_rate_add(&stream->message_rate, n_bytes, session->n_received, grpc_core_now(core),
                         limits->net.min_body_rate, limits->net.body_timeout_ns);
    bool slow =
        n_excusing > 0 && (!core->waiting_bytes || core->waiting_bytes(session) < n_excusing);
    return slow ? error_set(err, ST_REQUEST_TIMEOUT, "the message is too slow (--min-body-rate)")
                : ST_OK;
}

/* What is pending already comes before it. */
static enum status receive_behind_pending(struct grpc_stream *stream, struct str data,
                                          struct error *err) {
    struct grpc_receiver *in = &stream->in;
    enum status st = grpc_receiver_buffer_copy(in, data, err);
    if (st == ST_OK && !stream->inflating) {
        st = resume_pending(stream, err);
    }
    if (st == ST_OK && in->state == GRPC_RECEIVED) {
        if (!is_unary(stream)) {
            grpc_receive_deliver(stream);
        } else if (in->pending_input.data) {
            st = too_many_error(err);
        }
    }
    return st;
}

void grpc_receive_data(struct grpc_stream *stream, struct str data) {
    struct grpc_receiver *in = &stream->in;
    size_t n_received = data.len;
    struct error err;
    enum status st = ST_OK;
    bool pending = in->coding != HTTP_IDENTITY || in->pending_input.data;
    if (pending && in->state != GRPC_RECEIVING_STOPPED) {
        st = receive_behind_pending(stream, data, &err);
        data.len = 0;
    }
    bool waits = false;
    while (st == ST_OK && data.len > 0 && grpc_receiver_may_add(in) && !waits) {
        size_t before = data.len;
        st = grpc_receiver_add(in, &data, &err);
        consume_window(stream, before - data.len);
        if (st == ST_OK && in->state == GRPC_RECEIVED && !is_unary(stream)) {
            grpc_receive_deliver(stream);
            use_slice(stream->core, MESSAGE_SLICE_BYTES);
            waits = stream->core->inflate_left == 0;
        }
    }
    if (in->state == GRPC_RECEIVING_STOPPED) {
        consume_window(stream, data.len);
        return;
    }
    if (st == ST_OK && data.len > 0) { /* after a message that the method has not read */
        st = is_unary(stream) ? too_many_error(&err) : grpc_receiver_buffer_copy(in, data, &err);
        if (st == ST_OK) {
            wait_for_slice(stream);
        }
    }
    if (st == ST_OK) {
        st = check_rate(stream, n_received, &err);
    }
    if (st != ST_OK) {
        reject_message(stream, &err);
    }
    grpc_stream_update_timer(stream);
}

/* A unary call's method starts with END_STREAM, once its message is decompressed. */
static void end_unary(struct grpc_stream *stream) {
    struct error err;
    if (stream->inflating) {
        return;
    }
    if (stream->in.state == GRPC_RECEIVED) {
        grpc_stream_start_method(stream);
        deliver_message(stream);
        return;
    }
    if (check_end(stream, &err) == ST_OK) {
        error_set(&err, ST_BAD_REQUEST, "this method takes one message, got none");
    }
    grpc_stream_cancel(stream, &err);
}

void grpc_receive_end(struct grpc_stream *stream) {
    if (stream->in.state == GRPC_RECEIVING_STOPPED) {
        return;
    }
    if (is_unary(stream)) {
        end_unary(stream);
    } else {
        grpc_receive_deliver(stream);
    }
    grpc_stream_update_timer(stream);
}

void grpc_receive_inflate_more(struct grpc_stream *stream) {
    struct error err;
    if (!is_unary(stream)) {
        grpc_receive_deliver(stream);
    } else {
        enum status st = resume_pending(stream, &err);
        if (st == ST_OK && stream->in.state == GRPC_RECEIVED && stream->in.pending_input.data) {
            st = too_many_error(&err);
        }
        if (st != ST_OK) {
            reject_message(stream, &err);
        } else if (stream->remote_ended) {
            end_unary(stream);
        }
    }
    grpc_stream_update_timer(stream);
    grpc_core_schedule_write(stream->core, stream->session);
}

bool grpc_receive_is_waiting(const struct grpc_stream *stream) {
    if (stream->is_plain) {
        return !stream->remote_ended;
    }
    const struct grpc_receiver *in = &stream->in;
    if (in->state == GRPC_RECEIVING_STOPPED || stream->remote_ended || !stream->call.method) {
        return false;
    }
    bool idle = stream->message_delivered && grpc_receiver_is_at_boundary(in);
    return is_unary(stream) || (in->state < GRPC_RECEIVED && !idle);
}

void grpc_receive_discard(struct grpc_stream *stream) {
    if (stream->inflating) {
        stream->inflating = false;
        TAILQ_REMOVE(&stream->core->inflating, stream, inflating_link);
    }
    consume_window(stream, grpc_receiver_stop(&stream->in));
}
