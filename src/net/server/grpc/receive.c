/* Messages in: handed to the method when it asks. What comes behind a message that waits is kept,
 * at most as much as the stream's window allows; the connection's window is never held up by one
 * call. */
#include <assert.h>

#include "net/server/grpc/session.h"

static bool is_unary(const struct grpc_stream *stream) {
    return !stream->call.method->streams;
}

/* Bytes that will not be looked at any more, or have found their place: the peer may send more. */
static void consume_window(struct grpc_stream *stream, size_t n_bytes) {
    if (n_bytes > 0 && !stream->closed && !stream->remote_ended) {
        nghttp2_session_consume_stream(stream->session->h2, stream->id, n_bytes);
    }
}

/* ---- to the method --------------------------------------------------------------------------- */

/* Goes on with what was kept. */
static enum status resume_pending(struct grpc_stream *stream, struct error *err) {
    size_t n_used;
    enum status st = grpc_receiver_resume(&stream->in, &n_used, err);
    consume_window(stream, n_used);
    return st;
}

static void deliver_message(struct grpc_stream *stream) {
    stream->call.message = grpc_receiver_take(&stream->in);
    grpc_stream_emit(stream, GRPC_MESSAGE);
    stream->call.message = NULL;
}

/* All has been received, and nothing of it is kept. */
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

/* What came is no message that can be taken. */
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
        return; /* further up the stack it goes on */
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
            grpc_core_schedule_write(stream->core, stream->session); /* a window may be open
                                                                        again */
        }
    }
}

/* ---- from the connection --------------------------------------------------------------------- */

/* Bytes behind a message that waits. */
static enum status buffer_input(struct grpc_stream *stream, struct str data, struct error *err) {
    if (is_unary(stream)) {
        return error_set(err, ST_BAD_REQUEST, "this method takes one message, got more");
    }
    return grpc_receiver_buffer_copy(&stream->in, data, err);
}

void grpc_receive_data(struct grpc_stream *stream, struct str data) {
    struct grpc_receiver *in = &stream->in;
    struct error err;
    enum status st = ST_OK;
    while (st == ST_OK && data.len > 0 && grpc_receiver_may_add(in)) {
        size_t before = data.len;
        st = grpc_receiver_add(in, &data, &err);
        consume_window(stream, before - data.len);
        if (st == ST_OK && in->state == GRPC_RECEIVED && !is_unary(stream)) {
            grpc_receive_deliver(stream);
        }
    }
    if (in->state == GRPC_RECEIVING_STOPPED) {
        consume_window(stream, data.len);
        return;
    }
    if (st == ST_OK && data.len > 0) {
        st = buffer_input(stream, data, &err);
    }
    if (st != ST_OK) {
        reject_message(stream, &err);
    }
    grpc_stream_update_timer(stream);
}

/* A unary call is complete with its end. */
static void end_unary(struct grpc_stream *stream) {
    struct error err;
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

bool grpc_receive_is_waiting(const struct grpc_stream *stream) {
    if (stream->is_plain) {
        return !stream->remote_ended;
    }
    const struct grpc_receiver *in = &stream->in;
    if (in->state == GRPC_RECEIVING_STOPPED || stream->remote_ended || !stream->call.method) {
        return false;
    }
    return is_unary(stream) || (in->state < GRPC_RECEIVED && !grpc_receiver_is_at_boundary(in));
}

void grpc_receive_discard(struct grpc_stream *stream) {
    consume_window(stream, grpc_receiver_stop(&stream->in));
}
