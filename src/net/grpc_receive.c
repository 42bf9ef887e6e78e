/* Messages in: put together from DATA frames wherever they are cut, handed to the method when it
 * asks. What comes behind a message that waits is kept, at most as much as the stream's window
 * allows; the connection's window is never held up by one call. */
#include <stdlib.h>

#include "base/metric.h"
#include "loop/clock.h"
#include "net/grpc_session.h"

/* Bytes that will not be looked at any more, or have found their place: the peer may send more. */
static void consume(struct grpc_stream *stream, size_t n_bytes) {
    if (stream->session && stream->session->h2 && !stream->closed) {
        nghttp2_session_consume_stream(stream->session->h2, stream->id, n_bytes);
    }
}

/* ---- a message ------------------------------------------------------------------------------- */

static struct grpc_in *in_new(struct grpc_stream *stream) {
    struct grpc_core *core = stream->core;
    bool own = stream->call.method->streams;
    struct arena *arena = stream->call.arena;
    if (own) {
        arena = arena_new(worker_arenas(core->worker),
                          (size_t)core->options->limits.request_memory_bytes);
        metric_add(METRIC_ARENAS, arena != NULL);
    }
    struct grpc_in *in = arena ? arena_calloc(arena, 1, sizeof *in) : NULL;
    if (in) {
        in->message.arena = arena;
        in->own_arena = own;
    } else if (own && arena) {
        metric_add(METRIC_ARENAS, -1);
        arena_free(arena);
    }
    return in;
}

void grpc_message_free(struct grpc_message *message) {
    if (!message) {
        return;
    }
    struct grpc_in *in = (struct grpc_in *)message;
    body_release(&in->body, clock_now_ns());
    if (in->own_arena) {
        metric_add(METRIC_ARENAS, -1);
        arena_free(message->arena); /* with the message itself */
    }
}

/* Where in the message the method would like an address that is a multiple of 64. */
static size_t align_at(const struct grpc_stream *stream, struct str beginning, uint32_t n_bytes) {
    const struct grpc_method *method = stream->call.method;
    size_t at = method->align_at ? method->align_at(beginning) : 0;
    return at <= n_bytes ? at : 0;
}

static enum status begin_message(struct grpc_stream *stream, struct str beginning,
                                 struct error *err) {
    const struct grpc_limits *limits = &stream->core->options->limits;
    struct grpc_prefix prefix;
    enum status st = grpc_prefix_decode(stream->prefix, &prefix, err);
    if (st != ST_OK) {
        return st;
    }
    if (prefix.compressed && stream->coding == HTTP_IDENTITY) {
        return error_set(err, ST_BAD_REQUEST, "a compressed message, but no grpc-encoding");
    }
    if (prefix.n_bytes > limits->max_message_bytes) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "the message has %u bytes, the limit is %llu (--max-body-size)",
                         prefix.n_bytes, (unsigned long long)limits->max_message_bytes);
    }
    stream->in = in_new(stream);
    if (!stream->in) {
        return error_set(err, ST_NO_MEMORY, "no memory for a message");
    }
    struct body_means means = {.arena = stream->in->message.arena,
                               .pool = stream->core->pool,
                               .budget = stream->core->options->budget};
    struct body_plan plan = {.length = prefix.n_bytes,
                             .max_bytes = limits->max_message_bytes,
                             .coding = prefix.compressed ? stream->coding : HTTP_IDENTITY};
    plan.align_at = plan.coding == HTTP_IDENTITY ? align_at(stream, beginning, prefix.n_bytes) : 0;
    return body_begin(&stream->in->body, &means, &plan, err);
}

static enum status end_message(struct grpc_stream *stream, struct error *err) {
    struct grpc_in *in = stream->in;
    enum status st = body_end(&in->body, err);
    in->message.data = str_make(in->body.data, in->body.len);
    stream->receiving = GRPC_RECEIVED;
    return st;
}

static struct str take(struct str *data, size_t n) {
    struct str head = str_make(data->ptr, n < data->len ? n : data->len);
    *data = str_make(data->ptr + head.len, data->len - head.len);
    return head;
}

/* Takes what belongs to the message at hand off the front of `data`. */
static enum status add(struct grpc_stream *stream, struct str *data, struct error *err) {
    enum status st = ST_OK;
    size_t before = data->len;
    if (stream->receiving == GRPC_RECEIVING_PREFIX) {
        struct str part = take(data, GRPC_PREFIX_BYTES - stream->prefix_len);
        memcpy(stream->prefix + stream->prefix_len, part.ptr, part.len);
        stream->prefix_len += part.len;
        if (stream->prefix_len == GRPC_PREFIX_BYTES) {
            st = begin_message(stream, *data, err);
            stream->receiving = GRPC_RECEIVING_BODY;
        }
    }
    if (st == ST_OK && stream->receiving == GRPC_RECEIVING_BODY) {
        struct body *body = &stream->in->body;
        struct str part = take(data, body->left < SIZE_MAX ? (size_t)body->left : SIZE_MAX);
        st = part.len > 0 ? body_add(body, part, err) : ST_OK;
        if (st == ST_OK && body->left == 0) {
            st = end_message(stream, err);
        }
    }
    consume(stream, before - data->len);
    return st;
}

/* ---- what can't be used yet ------------------------------------------------------------------ */

static enum status stash(struct grpc_stream *stream, struct str data, struct error *err) {
    size_t wanted = stream->stash_len + data.len;
    if (wanted > stream->stash_cap) {
        size_t cap = wanted * 2;
        struct net_budget *budget = stream->core->options->budget;
        if (!net_budget_take(budget, cap - stream->stash_cap)) {
            return error_set(err, ST_OVERLOADED,
                             "too many bytes of messages are in flight (--body-memory)");
        }
        char *bytes = realloc(stream->stash, cap);
        if (!bytes) {
            net_budget_give(budget, cap - stream->stash_cap);
            return error_set(err, ST_NO_MEMORY, "no memory for a message");
        }
        stream->stash = bytes;
        stream->stash_cap = cap;
    }
    memcpy(stream->stash + stream->stash_len, data.ptr, data.len);
    stream->stash_len = wanted;
    return ST_OK;
}

static void stash_drop(struct grpc_stream *stream) {
    if (stream->stash) {
        net_budget_give(stream->core->options->budget, stream->stash_cap);
        free(stream->stash);
        consume(stream, stream->stash_len - stream->stash_at);
    }
    stream->stash = NULL;
    stream->stash_at = stream->stash_len = stream->stash_cap = 0;
}

/* Goes on with what was kept. */
static enum status unstash(struct grpc_stream *stream, struct error *err) {
    enum status st = ST_OK;
    while (st == ST_OK && stream->stash_at < stream->stash_len &&
           stream->receiving < GRPC_RECEIVED) {
        struct str data =
            str_make(stream->stash + stream->stash_at, stream->stash_len - stream->stash_at);
        st = add(stream, &data, err);
        stream->stash_at = stream->stash_len - data.len;
    }
    if (stream->stash && stream->stash_at == stream->stash_len) {
        stash_drop(stream);
    }
    return st;
}

/* ---- to the method --------------------------------------------------------------------------- */

/* What is wrong with the bytes ends the call. */
static void fail(struct grpc_stream *stream, const struct error *err) {
    if (stream->begun) {
        grpc_stream_cancel(stream, err->status, err->text);
    } else {
        grpc_stream_refuse(stream, err);
    }
}

static void give_message(struct grpc_stream *stream) {
    stream->call.message = &stream->in->message;
    stream->in = NULL;
    stream->prefix_len = 0;
    stream->receiving = GRPC_RECEIVING_PREFIX;
    stream->n_wanted--;
    grpc_stream_step(stream, GRPC_MESSAGE);
    stream->call.message = NULL;
}

/* Has everything been received that is to be given? */
static bool is_at_end(const struct grpc_stream *stream) {
    return stream->remote_ended && !stream->stash && !stream->half_closed &&
           stream->receiving == GRPC_RECEIVING_PREFIX && stream->n_wanted > 0;
}

void grpc_receive_deliver(struct grpc_stream *stream) {
    struct error err;
    if (stream->in_read) {
        return; /* further up the stack it goes on */
    }
    stream->in_read = true;
    while (stream->receiving == GRPC_RECEIVED && stream->n_wanted > 0) {
        give_message(stream);
        if (stream->receiving != GRPC_RECEIVING_END && unstash(stream, &err) != ST_OK) {
            fail(stream, &err);
        }
    }
    if (is_at_end(stream)) {
        if (stream->prefix_len > 0) {
            error_set(&err, ST_BAD_REQUEST, "the call ends within a message");
            fail(stream, &err);
        } else {
            stream->half_closed = true;
            stream->n_wanted--;
            grpc_stream_step(stream, GRPC_HALF_CLOSE);
        }
    }
    stream->in_read = false;
}

void grpc_read(struct grpc_call *call) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    if (stream->receiving == GRPC_RECEIVING_END) {
        return;
    }
    stream->n_wanted++;
    grpc_receive_deliver(stream);
}

static bool is_unary(const struct grpc_stream *stream) {
    return !stream->call.method->streams;
}

void grpc_receive_data(struct grpc_stream *stream, struct str data) {
    struct error err;
    enum status st = ST_OK;
    nghttp2_session_consume_connection(stream->session->h2, data.len);
    metric_add(METRIC_BODY_BYTES_TOTAL, (int64_t)data.len);
    while (st == ST_OK && data.len > 0 && stream->receiving < GRPC_RECEIVED) {
        st = add(stream, &data, &err);
        if (st == ST_OK && stream->receiving == GRPC_RECEIVED && !is_unary(stream)) {
            grpc_receive_deliver(stream);
        }
    }
    if (st == ST_OK && data.len > 0 && stream->receiving == GRPC_RECEIVED) {
        st = is_unary(stream)
                 ? error_set(&err, ST_BAD_REQUEST, "this method takes one message, got more")
                 : stash(stream, data, &err);
    } else if (stream->receiving == GRPC_RECEIVING_END) {
        consume(stream, data.len);
    }
    if (st != ST_OK) {
        fail(stream, &err);
    }
}

/* A unary call is complete with its end. */
static void end_unary(struct grpc_stream *stream) {
    struct error err;
    if (stream->receiving == GRPC_RECEIVED) {
        grpc_stream_give(stream);
        give_message(stream);
        return;
    }
    bool nothing = stream->receiving == GRPC_RECEIVING_PREFIX && stream->prefix_len == 0;
    error_set(&err, ST_BAD_REQUEST,
              nothing ? "this method takes one message, got none"
                      : "the call ends within a message");
    fail(stream, &err);
}

void grpc_receive_end(struct grpc_stream *stream) {
    struct error err;
    if (stream->receiving == GRPC_RECEIVING_END || !stream->call.method) {
        return;
    }
    if (is_unary(stream)) {
        end_unary(stream);
    } else if (stream->receiving == GRPC_RECEIVING_BODY) {
        error_set(&err, ST_BAD_REQUEST, "the call ends within a message");
        fail(stream, &err);
    } else {
        grpc_receive_deliver(stream);
    }
}

void grpc_receive_stop(struct grpc_stream *stream) {
    stream->receiving = GRPC_RECEIVING_END;
    stash_drop(stream);
    if (stream->in) {
        grpc_message_free(&stream->in->message);
        stream->in = NULL;
    }
}
