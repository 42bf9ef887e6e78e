/* Messages in: handed to the method when it asks. What comes behind a message that waits is kept,
 * at most as much as the stream's window allows; the connection's window is never held up by one
 * call. */
#include <assert.h>

#include "net/server/grpc/session.h"

static bool is_unary(const struct grpc_stream *stream) {
    return !stream->call.method->streams;
}

/* Bytes that will not be looked at any more, or have found their place: the peer may send more. */
static void consume(struct grpc_stream *stream, size_t n_bytes) {
    if (n_bytes > 0 && !stream->closed && !stream->remote_ended) {
        nghttp2_session_consume_stream(stream->session->h2, stream->id, n_bytes);
    }
}

/* ---- to the method --------------------------------------------------------------------------- */

/* Goes on with what was kept. */
static enum status unstash(struct grpc_stream *stream, struct error *err) {
    size_t n_used;
    enum status st = grpc_receiver_unstash(&stream->in, &n_used, err);
    consume(stream, n_used);
    return st;
}

static void give_message(struct grpc_stream *stream) {
    stream->call.message = grpc_receiver_take(&stream->in);
    grpc_stream_step(stream, GRPC_MESSAGE);
    stream->call.message = NULL;
}

/* All has been received, and nothing of it is kept. */
static bool is_at_end(const struct grpc_stream *stream) {
    return stream->remote_ended && stream->in.state < GRPC_RECEIVED && !stream->in.stash.data;
}

static enum status check_end(const struct grpc_stream *stream, struct error *err) {
    if (!is_at_end(stream) || grpc_receiver_is_between(&stream->in)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_REQUEST, "the client ended the call within a message");
}

/* What came is no message that can be taken. */
static void fail(struct grpc_stream *stream, const struct error *why) {
    struct grpc_call *call = &stream->call;
    bool said = stream->hold == GRPC_HELD && !call->gone && call->method->untaken &&
                call->method->untaken(call, why);
    assert(!said || stream->hold == GRPC_LET_GO);
    if (!said) {
        grpc_stream_cancel(stream, why);
    }
}

void grpc_receive_deliver(struct grpc_stream *stream) {
    struct error err;
    if (stream->giving) {
        return; /* further up the stack it goes on */
    }
    stream->giving = true;
    enum status st = unstash(stream, &err);
    while (st == ST_OK && stream->in.state == GRPC_RECEIVED && stream->in.n_wanted > 0) {
        give_message(stream);
        st = unstash(stream, &err);
    }
    if (st == ST_OK) {
        st = check_end(stream, &err);
    }
    if (st != ST_OK) {
        fail(stream, &err);
    } else if (is_at_end(stream) && !stream->half_closed && stream->in.n_wanted > 0) {
        stream->half_closed = true;
        stream->in.n_wanted--;
        grpc_stream_step(stream, GRPC_HALF_CLOSE);
    }
    stream->giving = false;
}

void grpc_read(struct grpc_call *call) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    assert(!is_unary(stream));
    if (stream->in.state != GRPC_RECEIVING_END) {
        stream->in.n_wanted++;
        if (!stream->stepping) {
            grpc_receive_deliver(stream);
            grpc_stream_await(stream);
            grpc_core_ask(stream->core, stream->session); /* a window may be open again */
        }
    }
}

/* ---- from the connection --------------------------------------------------------------------- */

/* Bytes behind a message that waits. */
static enum status keep(struct grpc_stream *stream, struct str data, struct error *err) {
    if (is_unary(stream)) {
        return error_set(err, ST_BAD_REQUEST, "this method takes one message, got more");
    }
    return grpc_receiver_keep_copy(&stream->in, data, err);
}

void grpc_receive_data(struct grpc_stream *stream, struct str data) {
    struct grpc_receiver *in = &stream->in;
    struct error err;
    enum status st = ST_OK;
    while (st == ST_OK && data.len > 0 && grpc_receiver_may_add(in)) {
        size_t before = data.len;
        st = grpc_receiver_add(in, &data, &err);
        consume(stream, before - data.len);
        if (st == ST_OK && in->state == GRPC_RECEIVED && !is_unary(stream)) {
            grpc_receive_deliver(stream);
        }
    }
    if (in->state == GRPC_RECEIVING_END) {
        consume(stream, data.len);
        return;
    }
    if (st == ST_OK && data.len > 0) {
        st = keep(stream, data, &err);
    }
    if (st != ST_OK) {
        fail(stream, &err);
    }
    grpc_stream_await(stream);
}

/* A unary call is complete with its end. */
static void end_unary(struct grpc_stream *stream) {
    struct error err;
    if (stream->in.state == GRPC_RECEIVED) {
        grpc_stream_give(stream);
        give_message(stream);
        return;
    }
    if (check_end(stream, &err) == ST_OK) {
        error_set(&err, ST_BAD_REQUEST, "this method takes one message, got none");
    }
    grpc_stream_cancel(stream, &err);
}

void grpc_receive_end(struct grpc_stream *stream) {
    if (stream->in.state == GRPC_RECEIVING_END) {
        return;
    }
    if (is_unary(stream)) {
        end_unary(stream);
    } else {
        grpc_receive_deliver(stream);
    }
    grpc_stream_await(stream);
}

bool grpc_receive_waits(const struct grpc_stream *stream) {
    if (stream->is_plain) {
        return !stream->remote_ended;
    }
    const struct grpc_receiver *in = &stream->in;
    if (in->state == GRPC_RECEIVING_END || stream->remote_ended || !stream->call.method) {
        return false;
    }
    return is_unary(stream) || (in->state < GRPC_RECEIVED && !grpc_receiver_is_between(in));
}

void grpc_receive_stop(struct grpc_stream *stream) {
    consume(stream, grpc_receiver_stop(&stream->in));
}
