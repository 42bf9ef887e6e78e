/* A connection: nghttp2's callbacks, each a line or two that finds the stream and hands on. What a
 * frame means for a call is grpc_stream.c's and grpc_receive.c's. */
#include "net/grpc_session.h"

#include "loop/clock.h"

/* A peer that resets its calls faster than they end has no more than this many of them alive, in
 * multiples of the streams it may have at once. */
enum { MOST_ALIVE = 4 };

static struct grpc_stream *stream_of(nghttp2_session *h2, int32_t id) {
    return nghttp2_session_get_stream_user_data(h2, id);
}

static void punish(struct grpc_session *session) {
    session->failed = true;
    nghttp2_session_terminate_session(session->h2, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- frames in ------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_session *session = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0; /* trailers: of no interest here */
    }
    struct grpc_stream *stream = NULL;
    if (session->n_streams < (size_t)session->core->options->limits.max_streams * MOST_ALIVE) {
        stream = grpc_stream_new(session, frame->hd.stream_id);
    }
    if (!stream) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, stream);
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user) {
    (void)flags;
    struct grpc_stream *stream = stream_of(h2, frame->hd.stream_id);
    if (!stream || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    if (!grpc_head_add(stream, str_make((const char *)name, name_len),
                       str_make((const char *)value, value_len))) {
        punish(user); /* far over the limit, which it was told in the settings */
    }
    return 0;
}

/* Tokens for what needs no call. */
static void count_frame(struct grpc_session *session, const nghttp2_frame *frame) {
    bool empty = frame->hd.type == NGHTTP2_DATA && frame->hd.length == 0 &&
                 !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    bool control = frame->hd.type == NGHTTP2_PING || frame->hd.type == NGHTTP2_SETTINGS ||
                   frame->hd.type == NGHTTP2_PRIORITY;
    bool ack = frame->hd.type != NGHTTP2_PRIORITY && frame->hd.flags & NGHTTP2_FLAG_ACK;
    if ((empty || (control && !ack)) &&
        !h2_bucket_take(&session->control, &H2_CONTROL, clock_now_ns())) {
        punish(session);
    }
}

static void count_reset(struct grpc_session *session, const nghttp2_frame *frame) {
    const struct grpc_stream *stream = stream_of(session->h2, frame->hd.stream_id);
    if (stream && !stream->answered &&
        !h2_bucket_take(&session->resets, &H2_RESETS, clock_now_ns())) {
        punish(session);
    }
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_session *session = user;
    count_frame(session, frame);
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        count_reset(session, frame);
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    struct grpc_stream *stream = stream_of(h2, frame->hd.stream_id);
    if (!stream) {
        return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        grpc_stream_begin(stream);
    }
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        stream->remote_ended = true;
        grpc_receive_end(stream);
    }
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *user) {
    (void)flags;
    struct grpc_stream *stream = stream_of(h2, id);
    if (stream) {
        grpc_receive_data(stream, str_make((const char *)data, len));
        return 0;
    }
    struct grpc_session *session = user; /* of a stream that is gone: the connection goes on */
    return nghttp2_session_consume_connection(session->h2, len);
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user) {
    (void)code, (void)user;
    struct grpc_stream *stream = stream_of(h2, id);
    if (stream) {
        grpc_stream_closed(stream);
    }
    return 0;
}

/* ---- frames out ------------------------------------------------------------------------------ */

/* RFC 9113, 8.1: a server that has answered without reading all of the request asks the client to
 * stop with a reset that is no error. */
static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    (void)user;
    bool may_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (!may_end || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        return 0;
    }
    struct grpc_stream *stream = stream_of(h2, frame->hd.stream_id);
    if (stream) {
        stream->answered = true;
        if (!stream->remote_ended) {
            nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
        }
    }
    return 0;
}

static int on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                        nghttp2_data_source *source, void *user) {
    (void)h2, (void)frame;
    struct grpc_session *session = user;
    return grpc_output_data(session->output, source->ptr, head, len) ? 0 : NGHTTP2_ERR_WOULDBLOCK;
}

nghttp2_session_callbacks *grpc_session_callbacks(void) {
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) {
        return NULL;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    return callbacks;
}

/* ---- a session's life ------------------------------------------------------------------------ */

enum status grpc_session_open(struct grpc_core *core, struct grpc_session *session,
                              struct error *err) {
    const struct grpc_limits *limits = &core->options->limits;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits->stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)limits->max_header_bytes},
    };
    session->core = core;
    int code = nghttp2_session_server_new2(&session->h2, core->callbacks, session, core->option);
    if (code == 0) {
        code = nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings,
                                       sizeof settings / sizeof settings[0]);
    }
    if (code == 0) {
        code = nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0,
                                                     (int32_t)limits->connection_window_bytes);
    }
    if (code != 0) {
        nghttp2_session_del(session->h2);
        session->h2 = NULL;
        return error_set(err, ST_NO_MEMORY, "no memory for a connection");
    }
    return ST_OK;
}

enum status grpc_session_receive(struct grpc_session *session, struct str data, struct error *err) {
    ssize_t n = nghttp2_session_mem_recv(session->h2, (const uint8_t *)data.ptr, data.len);
    if (n < 0) {
        session->failed = true;
        return error_set(err, n == NGHTTP2_ERR_NOMEM ? ST_NO_MEMORY : ST_BAD_REQUEST, "HTTP/2: %s",
                         nghttp2_strerror((int)n));
    }
    if (session->failed) {
        return error_set(
            err, ST_BAD_REQUEST,
            "HTTP/2: more control frames, resets or header bytes than any client needs");
    }
    return ST_OK;
}

void grpc_session_drain(struct grpc_session *session) {
    if (session->draining) {
        return;
    }
    session->draining = true;
    nghttp2_submit_shutdown_notice(session->h2);
    int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
    nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
    session->core->ask_turn(session->core, session);
}

void grpc_session_say_goodbye(struct grpc_session *session) {
    nghttp2_session_terminate_session(session->h2, NGHTTP2_NO_ERROR);
    session->core->ask_turn(session->core, session);
}

bool grpc_session_is_over(const struct grpc_session *session) {
    bool idle = session->draining && session->n_streams == 0;
    bool dead = !nghttp2_session_want_read(session->h2) && !nghttp2_session_want_write(session->h2);
    return !session->writing && (dead || (idle && !nghttp2_session_want_write(session->h2)));
}

void grpc_session_close(struct grpc_session *session) {
    if (!session->h2) {
        return;
    }
    session->writing = false;
    for (struct grpc_stream *stream = session->streams, *next; stream; stream = next) {
        next = stream->next;
        grpc_stream_closed(stream);
    }
    grpc_outgoing_release(session->sent);
    session->sent = NULL;
    nghttp2_session_del(session->h2);
    session->h2 = NULL;
}
