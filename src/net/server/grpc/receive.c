/* Messages that a stream receives: assembled by the receiver, and delivered when the method reads.
 *
 * Flow control: nghttp2 returns no window of a stream by itself. consume_window returns it for
 * bytes that the receiver used or dropped, and nothing else does: where the method has not asked
 * for a message, the bytes are kept as pending input, their window stays closed, and the client
 * waits. */
#include <assert.h>

#include "net/server/grpc/session.h"

static bool is_unary(const struct grpc_stream *stream) {
    return !stream->call.method->streams;
}

/* Returns the window of bytes that were used or dropped: the peer may send as many more. */
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
    if (stream->is_exchange) {
        stream->session->http_requests->on_rejected(stream, why);
        return;
    }
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
    return slow ? error_set(err, ST_REQUEST_TIMEOUT, "the %s is too slow (--min-body-rate)",
                            stream->is_exchange ? "request body" : "message")
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
        if (stream->is_exchange && !stream->session->http_requests->skips(stream, data.len) &&
            stream->response_state == GRPC_RESPONSE_SENT) {
            grpc_stream_reset(stream, NGHTTP2_NO_ERROR);
        }
        return;
    }
    /* After a message that the method has not read: kept, and the window stays closed for it. */
    if (st == ST_OK && data.len > 0) {
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
    if (stream->is_exchange) {
        if (grpc_receiver_end_unframed(&stream->in, &err) == ST_OK) {
            deliver_message(stream);
        } else {
            reject_message(stream, &err);
        }
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
