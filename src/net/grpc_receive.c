/* Messages in: put together from DATA frames wherever they are cut, handed to the method when it
 * asks. What comes behind a message that waits is kept, at most as much as the stream's window
 * allows; the connection's window is never held up by one call. */
#include <assert.h>

#include "loop/clock.h"
#include "net/grpc_session.h"

enum { BEGINNING_BYTES = 1024 }; /* of a message: enough to see where its large field lies */

static struct net_budget *budget_of(const struct grpc_stream *stream) {
    return stream->core->options->budget;
}

static bool is_unary(const struct grpc_stream *stream) {
    return !stream->call.method->streams;
}

/* Bytes that will not be looked at any more, or have found their place: the peer may send more. */
static void consume(struct grpc_stream *stream, size_t n_bytes) {
    if (n_bytes > 0 && !stream->closed && !stream->remote_ended) {
        nghttp2_session_consume_stream(stream->session->h2, stream->id, n_bytes);
    }
}

/* ---- a message ------------------------------------------------------------------------------- */

static struct grpc_in *in_new(struct grpc_stream *stream) {
    const struct grpc_core *core = stream->core;
    bool own = !is_unary(stream);
    struct arena *arena = own ? arena_new(worker_arenas(core->worker),
                                          (size_t)core->options->limits.request_memory_bytes)
                              : stream->call.arena;
    struct grpc_in *in = arena ? arena_calloc(arena, 1, sizeof(*in)) : NULL;
    if (in) {
        in->message.arena = arena;
        in->own_arena = own;
    } else if (own) {
        arena_free(arena);
    }
    return in;
}

void grpc_message_free(struct grpc_message *message) {
    struct grpc_in *in = (struct grpc_in *)message;
    if (!message) {
        return;
    }
    body_release(&in->body, in->body.block ? clock_now_ns() : 0);
    if (in->own_arena) {
        arena_free(message->arena); /* with the message itself */
    }
}

static enum status check_prefix(const struct grpc_stream *stream, struct grpc_prefix *prefix,
                                struct error *err) {
    uint64_t most = stream->core->options->limits.max_message_bytes;
    enum status st = grpc_prefix_decode(stream->prefix, prefix, err);
    if (st != ST_OK) {
        return st;
    }
    if (prefix->compressed && stream->coding == HTTP_IDENTITY) {
        return error_set(err, ST_BAD_REQUEST,
                         "a message is marked as compressed, but grpc-encoding names no coding");
    }
    if (prefix->n_bytes > most) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "expected a message of at most %llu bytes (--max-body-size), got one of "
                         "%lu announced",
                         (unsigned long long)most, (unsigned long)prefix->n_bytes);
    }
    return body_fits(budget_of(stream), prefix->n_bytes, err);
}

/* Makes room for the message, of which the beginning is known. */
static enum status begin_body(struct grpc_stream *stream, struct str beginning, struct error *err) {
    const struct grpc_method *method = stream->call.method;
    struct grpc_prefix prefix;
    enum status st = grpc_prefix_decode(stream->prefix, &prefix, err);
    if (st != ST_OK) {
        return st;
    }
    struct body_means means = {.arena = stream->in->message.arena,
                               .pool = stream->core->pool,
                               .budget = budget_of(stream)};
    struct body_plan plan = {.length = prefix.n_bytes,
                             .max_bytes = stream->core->options->limits.max_message_bytes,
                             .coding = prefix.compressed ? stream->coding : HTTP_IDENTITY};
    if (method->align_at && !prefix.compressed) {
        beginning.len = beginning.len < prefix.n_bytes ? beginning.len : prefix.n_bytes;
        size_t at = method->align_at(beginning);
        plan.align_at = at <= prefix.n_bytes ? at : 0;
    }
    stream->receiving = GRPC_RECEIVING_BODY;
    return body_begin(&stream->in->body, &means, &plan, err);
}

/* The prefix is here. */
static enum status begin_message(struct grpc_stream *stream, struct str data, struct error *err) {
    struct grpc_prefix prefix;
    enum status st = check_prefix(stream, &prefix, err);
    if (st != ST_OK) {
        return st;
    }
    stream->in = in_new(stream);
    if (!stream->in) {
        return error_set(err, ST_NO_MEMORY, "no memory for a message");
    }
    size_t wanted = prefix.n_bytes < BEGINNING_BYTES ? prefix.n_bytes : BEGINNING_BYTES;
    if (!stream->call.method->align_at || prefix.compressed || data.len >= wanted) {
        return begin_body(stream, data, err);
    }
    struct grpc_in *in = stream->in;
    in->beginning = arena_alloc(in->message.arena, wanted);
    in->body.left = wanted;
    stream->receiving = GRPC_RECEIVING_BEGINNING;
    return in->beginning ? ST_OK : error_set(err, ST_NO_MEMORY, "no memory for a message");
}

static struct str take(struct str *data, uint64_t most) {
    struct str head = str_make(data->ptr, data->len < most ? data->len : (size_t)most);
    *data = str_make(data->ptr + head.len, data->len - head.len);
    return head;
}

static enum status add_prefix(struct grpc_stream *stream, struct str *data, struct error *err) {
    struct str part = take(data, GRPC_PREFIX_BYTES - stream->prefix_len);
    memcpy(stream->prefix + stream->prefix_len, part.ptr, part.len);
    stream->prefix_len += part.len;
    return stream->prefix_len == GRPC_PREFIX_BYTES ? begin_message(stream, *data, err) : ST_OK;
}

static enum status add_beginning(struct grpc_stream *stream, struct str *data, struct error *err) {
    struct grpc_in *in = stream->in;
    struct str part = take(data, in->body.left);
    memcpy(in->beginning + in->n_beginning, part.ptr, part.len);
    in->n_beginning += part.len;
    in->body.left -= part.len;
    if (in->body.left > 0) {
        return ST_OK;
    }
    struct str beginning = str_make(in->beginning, in->n_beginning);
    enum status st = begin_body(stream, beginning, err);
    return st == ST_OK ? body_add(&in->body, beginning, err) : st;
}

static enum status add_body(struct grpc_stream *stream, struct str *data, struct error *err) {
    struct body *body = &stream->in->body;
    struct str part = take(data, body->left);
    enum status st = part.len > 0 ? body_add(body, part, err) : ST_OK;
    if (st != ST_OK || body->left > 0) {
        return st;
    }
    st = body_end(body, err);
    stream->in->message.data = str_make(body->data, body->len);
    stream->receiving = GRPC_RECEIVED;
    return st;
}

/* Takes what belongs to the message at hand off the front of `data`. */
static enum status add(struct grpc_stream *stream, struct str *data, struct error *err) {
    enum status st = ST_OK;
    size_t before = data->len;
    if (stream->receiving == GRPC_RECEIVING_PREFIX) {
        st = add_prefix(stream, data, err);
    }
    if (st == ST_OK && stream->receiving == GRPC_RECEIVING_BEGINNING) {
        st = add_beginning(stream, data, err);
    }
    if (st == ST_OK && stream->receiving == GRPC_RECEIVING_BODY) {
        st = add_body(stream, data, err);
    }
    consume(stream, before - data->len);
    return st;
}

/* ---- to the method --------------------------------------------------------------------------- */

static bool is_between_messages(const struct grpc_stream *stream) {
    return stream->receiving == GRPC_RECEIVING_PREFIX && stream->prefix_len == 0;
}

/* May bytes go into a message? None is begun before the method has asked for it: what it holds
 * would not be bounded by the window. */
static bool may_add(const struct grpc_stream *stream) {
    return stream->receiving < GRPC_RECEIVED &&
           (stream->n_wanted > 0 || !is_between_messages(stream));
}

/* Goes on with what was kept. */
static enum status unstash(struct grpc_stream *stream, struct error *err) {
    enum status st = ST_OK;
    struct str data = grpc_stash_bytes(&stream->stash);
    while (st == ST_OK && data.len > 0 && may_add(stream)) {
        size_t before = data.len;
        st = add(stream, &data, err);
        grpc_stash_cut(&stream->stash, budget_of(stream), before - data.len);
    }
    return st;
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

/* All has been received, and nothing of it is kept. */
static bool is_at_end(const struct grpc_stream *stream) {
    return stream->remote_ended && stream->receiving < GRPC_RECEIVED && !stream->stash.data;
}

static enum status check_end(const struct grpc_stream *stream, struct error *err) {
    if (!is_at_end(stream) || is_between_messages(stream)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_REQUEST, "the client ended the call within a message");
}

void grpc_receive_deliver(struct grpc_stream *stream) {
    struct error err;
    if (stream->giving) {
        return; /* further up the stack it goes on */
    }
    stream->giving = true;
    enum status st = unstash(stream, &err);
    while (st == ST_OK && stream->receiving == GRPC_RECEIVED && stream->n_wanted > 0) {
        give_message(stream);
        st = unstash(stream, &err);
    }
    if (st == ST_OK) {
        st = check_end(stream, &err);
    }
    if (st != ST_OK) {
        grpc_stream_cancel(stream, &err);
    } else if (is_at_end(stream) && !stream->half_closed && stream->n_wanted > 0) {
        stream->half_closed = true;
        stream->n_wanted--;
        grpc_stream_step(stream, GRPC_HALF_CLOSE);
    }
    stream->giving = false;
}

void grpc_read(struct grpc_call *call) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    assert(!is_unary(stream));
    if (stream->receiving != GRPC_RECEIVING_END) {
        stream->n_wanted++;
        if (!stream->stepping) {
            grpc_receive_deliver(stream);
            grpc_stream_await(stream);
        }
    }
}

/* ---- from the connection --------------------------------------------------------------------- */

/* Bytes behind a message that waits. */
static enum status keep(struct grpc_stream *stream, struct str data, struct error *err) {
    if (is_unary(stream)) {
        return error_set(err, ST_BAD_REQUEST, "this method takes one message, got more");
    }
    return grpc_stash_add_copy(&stream->stash, budget_of(stream), data, err);
}

void grpc_receive_data(struct grpc_stream *stream, struct str data) {
    struct error err;
    enum status st = ST_OK;
    while (st == ST_OK && data.len > 0 && may_add(stream)) {
        st = add(stream, &data, &err);
        if (st == ST_OK && stream->receiving == GRPC_RECEIVED && !is_unary(stream)) {
            grpc_receive_deliver(stream);
        }
    }
    if (stream->receiving == GRPC_RECEIVING_END) {
        consume(stream, data.len);
        return;
    }
    if (st == ST_OK && data.len > 0) {
        st = keep(stream, data, &err);
    }
    if (st != ST_OK) {
        grpc_stream_cancel(stream, &err);
    }
    grpc_stream_await(stream);
}

/* A unary call is complete with its end. */
static void end_unary(struct grpc_stream *stream) {
    struct error err;
    if (stream->receiving == GRPC_RECEIVED) {
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
    if (stream->receiving == GRPC_RECEIVING_END) {
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
    if (stream->receiving == GRPC_RECEIVING_END || stream->remote_ended || !stream->call.method) {
        return false;
    }
    return is_unary(stream) || (stream->receiving < GRPC_RECEIVED && !is_between_messages(stream));
}

void grpc_receive_stop(struct grpc_stream *stream) {
    size_t n_kept = grpc_stash_bytes(&stream->stash).len;
    stream->receiving = GRPC_RECEIVING_END;
    grpc_stash_cut(&stream->stash, budget_of(stream), n_kept);
    consume(stream, n_kept);
    if (stream->in) {
        grpc_message_free(&stream->in->message);
        stream->in = NULL;
    }
}
