/* What nghttp2 calls: each a few lines that find the stream, count what has to be paid for, and
 * hand on. What a frame means for a call is stream.c's and receive.c's. */
#include <stdio.h>

#include "net/server/grpc/session.h"

enum {
    /* A peer that resets its calls faster than they end has no more than this many of them alive,
     * in multiples of the streams it may have at once. */
    MAX_ALIVE_RATIO = 4,
    FIELD_OVERHEAD = 32,    /* RFC 9113, 10.5.1: what a field counts for besides its bytes */
    LARGE_BYTES = 1 << 20,  /* of a message, and then of a frame */
    HEADER_ABUSE_RATIO = 8, /* times the limit: not only refused, but the connection
                                        ended */
};

/* Frames of one stream mostly follow each other. */
static struct grpc_stream *stream_of(struct grpc_session *session, int32_t id) {
    if (!session->recent || session->recent->id != id) {
        session->recent = nghttp2_session_get_stream_user_data(session->h2, id);
    }
    return session->recent;
}

/* A call that was ended before it was answered, or that could not even begin. */
static void count_reset(struct grpc_session *session) {
    if (!h2_bucket_take(&session->resets, &H2_RESETS_LIMIT, grpc_core_now(session->core))) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "more resets of unanswered calls than any client needs");
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_session *session = user;
    session->head_stream = NULL;
    session->head_bytes = 0;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0; /* trailers: of no interest here, but counted */
    }
    size_t most = (size_t)session->core->options->limits.max_streams * MAX_ALIVE_RATIO;
    struct grpc_stream *stream = NULL;
    if (session->n_alive < most && !session->terminating) {
        stream = grpc_stream_new(session, frame->hd.stream_id);
    }
    if (!stream) { /* RFC 9113, 8.7: it may be tried again */
        count_reset(session);
        int code = nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                             NGHTTP2_REFUSED_STREAM);
        return code == 0 ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, stream);
    session->head_stream = session->recent = stream;
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user) {
    struct grpc_session *session = user;
    size_t limit = session->core->options->limits.max_header_size;
    (void)h2, (void)frame, (void)flags;
    session->head_bytes += name_len + value_len + FIELD_OVERHEAD;
    if (session->head_bytes > limit * HEADER_ABUSE_RATIO) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "header fields far over the limit that the settings told "
                          "(--max-header-size)");
    }
    if (session->terminating) {
        return NGHTTP2_ERR_PAUSE;
    }
    struct grpc_stream *stream = session->head_stream;
    if (stream && session->head_bytes > limit) {
        stream->head_too_large = true;
    } else if (stream) {
        grpc_head_add(stream, str_make((const char *)name, name_len),
                      str_make((const char *)value, value_len));
    }
    return 0;
}

static void on_head(struct grpc_session *session) {
    struct grpc_stream *stream = session->head_stream;
    session->head_stream = NULL;
    if (stream && !stream->closed) {
        grpc_stream_on_head(stream);
    }
}

/* ---- what has to be paid for ----------------------------------------------------------------- */

/* Needs no call, and costs an answer or at least a look. */
static bool is_control(const struct grpc_session *session, const nghttp2_frame *frame) {
    bool ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
        return frame->hd.length == frame->data.padlen &&
               !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    case NGHTTP2_SETTINGS:
        return !ack;
    case NGHTTP2_PING:
        return !ack && !session->sent_since_ping; /* who measures while data flows may */
    default:
        return false;
    }
}

static void count_control(struct grpc_session *session) {
    if (!h2_bucket_take(&session->control, &H2_CONTROL_LIMIT, grpc_core_now(session->core))) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "more pings, settings, priorities or empty frames than any client needs");
    }
}

/* nghttp2 says of a priority of a stream that is closed no more than that it begins. */
static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *hd, void *user) {
    struct grpc_session *session = user;
    (void)h2;
    if (hd->type == NGHTTP2_PRIORITY) {
        count_control(session);
    }
    return 0;
}

static void count_frame(struct grpc_session *session, const nghttp2_frame *frame) {
    if (is_control(session, frame)) {
        count_control(session);
    }
    if (frame->hd.type == NGHTTP2_PING) {
        session->sent_since_ping = false;
    }
}

/* ---- frames in ------------------------------------------------------------------------------- */

/* The client has seen the notice of the end. */
static int submit_last_goaway(struct grpc_session *session) {
    session->goaway_sent = true;
    int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
    return nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_session *session = user;
    bool ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    (void)h2;
    count_frame(session, frame);
    if (frame->hd.type == NGHTTP2_SETTINGS) {
        session->settings_received = true;
    }
    if (frame->hd.type == NGHTTP2_PING && ack && session->draining && !session->goaway_sent) {
        return submit_last_goaway(session) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS) {
        on_head(session);
    }
    struct grpc_stream *stream = stream_of(session, frame->hd.stream_id);
    if (stream && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        stream->remote_ended = true;
        if (stream->is_plain) {
            grpc_plain_answer(stream);
        } else {
            grpc_receive_end(stream);
        }
    }
    return 0;
}

static int on_invalid_frame(nghttp2_session *h2, const nghttp2_frame *frame, int code, void *user) {
    struct grpc_session *session = user;
    (void)h2, (void)code;
    if (frame->hd.type == NGHTTP2_HEADERS) { /* one call too many, or a head that is wrong */
        count_reset(session);
    }
    return 0;
}

/* Who sends large messages may do it in fewer frames. Others are not told: a frame of usual size is
 * enough for a head, and has the connection shared fairly. */
static void allow_large_frames(struct grpc_session *session) {
    const nghttp2_settings_entry setting = {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, LARGE_BYTES};
    if (!session->large_frames) {
        session->large_frames = true;
        nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, &setting, 1);
    }
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *user) {
    struct grpc_session *session = user;
    struct grpc_stream *stream = stream_of(session, id);
    (void)flags;
    if (session->terminating) {
        return NGHTTP2_ERR_PAUSE;
    }
    /* One call that does not read holds up its own window, never the connection's. */
    nghttp2_session_consume_connection(h2, len);
    if (stream) {
        grpc_receive_data(stream, str_make((const char *)data, len));
        session->message_bytes_left = grpc_receiver_n_left(&stream->in);
        if (session->message_bytes_left >= LARGE_BYTES) {
            allow_large_frames(session);
        }
    }
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user) {
    struct grpc_session *session = user;
    struct grpc_stream *stream = stream_of(session, id);
    (void)h2;
    if (stream) {
        /* Resets are also provoked, by frames that are wrong for the stream, so it does not matter
         * who sent this one; but for those that are our own doing. */
        if (code != NGHTTP2_NO_ERROR && !stream->response_started && !stream->call.is_cancelled) {
            count_reset(session);
        }
        if (session->head_stream == stream) {
            session->head_stream = NULL;
        }
        if (stream->remote_ended) {
            h2_closed_streams_add(&session->scan.ended, id);
        }
        grpc_stream_closed(stream);
    }
    return 0;
}

/* ---- frames out ------------------------------------------------------------------------------ */

/* nghttp2 ends connections by itself too; this is where it is heard of. */
static void on_goaway_sent(struct grpc_session *session, const nghttp2_goaway *frame) {
    char why[128];
    if (frame->error_code == NGHTTP2_NO_ERROR || session->terminating) {
        return;
    }
    struct str reason = str_make((const char *)frame->opaque_data, frame->opaque_data_len);
    snprintf(why, sizeof(why), "%s%s%.*s", nghttp2_http2_strerror(frame->error_code),
             reason.len > 0 ? ": " : "", STR_ARG(reason));
    session->terminate_submitted = true;
    grpc_session_fail(session, frame->error_code, why);
}

/* RFC 9113, 8.1: a server that has answered without reading all of the request asks the client to
 * stop, with a reset that is no error. */
static void on_answer_sent(struct grpc_session *session, struct grpc_stream *stream) {
    grpc_stream_set_response_state(stream, GRPC_RESPONSE_SENT);
    if (!stream->remote_ended) {
        nghttp2_submit_rst_stream(session->h2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR);
    }
}

static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_session *session = user;
    (void)h2;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        on_goaway_sent(session, &frame->goaway);
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    session->sent_since_ping = true;
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        struct grpc_stream *stream = stream_of(session, frame->hd.stream_id);
        if (stream) {
            on_answer_sent(session, stream);
        }
    }
    return 0;
}

/* An answer that cannot be said (its fields are far too large): the call ends without. */
static int on_not_sent(nghttp2_session *h2, const nghttp2_frame *frame, int code, void *user) {
    struct grpc_session *session = user;
    (void)code;
    if (frame->hd.type == NGHTTP2_HEADERS && stream_of(session, frame->hd.stream_id)) {
        nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_INTERNAL_ERROR);
    }
    return 0;
}

static int on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                        nghttp2_data_source *source, void *user) {
    struct grpc_session *session = user;
    struct grpc_write_batch *flight = &session->write_batch;
    struct grpc_stream *stream = source->ptr;
    (void)h2, (void)frame;
    if (!grpc_output_add_data_frame(flight->output, &stream->out, flight, head, len)) {
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    grpc_stream_update_timer(stream); /* it was taken: the time begins anew */
    return 0;
}

nghttp2_session_callbacks *grpc_frames_callbacks(void) {
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) {
        return NULL;
    }
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_not_sent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    return callbacks;
}
