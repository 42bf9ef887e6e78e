/* What nghttp2 calls: each a few lines that find the call and hand on. What it means is
 * client_response.c's. */
#include <stdio.h>

#include "net/client/grpc/session.h"

enum {
    FIELD_OVERHEAD = 32,    /* RFC 9113, 10.5.1: what a field counts for besides its bytes */
    HEADER_ABUSE_RATIO = 8, /* times the limit: not only refused, but the connection ended */
};

static struct grpc_client_stream *stream_of(nghttp2_session *h2, int32_t id) {
    return nghttp2_session_get_stream_user_data(h2, id);
}

static bool is_failing(const struct grpc_client_session *session) {
    return session->error.status != ST_OK;
}

/* ---- in -------------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_client_session *session = user;
    bool push = frame->hd.type == NGHTTP2_PUSH_PROMISE; /* before it has seen that none is wanted */
    session->head_stream = push ? NULL : stream_of(h2, frame->hd.stream_id);
    session->head_bytes = 0;
    return push ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user) {
    struct grpc_client_session *session = user;
    struct grpc_client_stream *stream = session->head_stream;
    uint64_t limit = session->core->limits.max_header_size;
    struct error err;
    (void)h2, (void)frame, (void)flags;
    session->head_bytes += name_len + value_len + FIELD_OVERHEAD;
    if (session->head_bytes / HEADER_ABUSE_RATIO > limit) {
        error_set(&err, ST_BAD_ANSWER, "the server sent header fields far over the limit");
        grpc_client_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM, &err);
    }
    if (is_failing(session)) {
        return NGHTTP2_ERR_PAUSE;
    }
    if (stream && session->head_bytes > limit) {
        stream->head_too_large = true;
    } else if (stream) {
        grpc_client_response_add_field(stream, str_make((const char *)name, name_len),
                                       str_make((const char *)value, value_len));
    }
    return 0;
}

/* RFC 9113, 6.8: calls that the server has not begun are closed by nghttp2, which says so for each
 * of them. */
static void on_goaway(struct grpc_client_session *session, const nghttp2_goaway *frame) {
    size_t len = frame->opaque_data_len;
    session->going_away = true;
    if (frame->error_code != NGHTTP2_NO_ERROR) {
        error_set(&session->goaway_error, ST_IO, "the server ended the connection: %s%s%.*s",
                  nghttp2_http2_strerror(frame->error_code), len > 0 ? ": " : "", (int)len,
                  len > 0 ? (const char *)frame->opaque_data : "");
    }
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_client_session *session = user;
    struct grpc_client_stream *stream = stream_of(h2, frame->hd.stream_id);
    bool last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_SETTINGS) {
        session->settings_received = true;
    } else if (frame->hd.type == NGHTTP2_GOAWAY) {
        on_goaway(session, &frame->goaway);
    } else if (frame->hd.type == NGHTTP2_HEADERS && stream) {
        session->call_answered = true;
        session->head_stream = NULL;
        grpc_client_response_finish_head(stream, last);
    }
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && last && stream) {
        grpc_client_response_on_end_stream(stream);
    }
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *user) {
    struct grpc_client_session *session = user;
    struct grpc_client_stream *stream = stream_of(h2, id);
    (void)flags;
    if (is_failing(session)) {
        return NGHTTP2_ERR_PAUSE;
    }
    /* One call whose caller does not read holds up its own window, never the connection's. */
    nghttp2_session_consume_connection(h2, len);
    if (stream) {
        grpc_client_response_add_data(stream, str_make((const char *)data, len));
    }
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user) {
    struct grpc_client_stream *stream = stream_of(h2, id);
    (void)user;
    if (stream) {
        if (!stream->remote_ended) {
            grpc_client_response_on_reset(stream, code);
        }
        grpc_client_stream_closed(stream);
    }
    return 0;
}

/* ---- out ------------------------------------------------------------------------------------- */

/* nghttp2 ends connections by itself too; this is where it is heard of. */
static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_client_session *session = user;
    struct error err;
    (void)h2;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR &&
        !is_failing(session)) {
        size_t len = frame->goaway.opaque_data_len;
        error_set(&err, ST_BAD_ANSWER, "the server broke a rule of HTTP/2: %s%s%.*s",
                  nghttp2_http2_strerror(frame->goaway.error_code), len > 0 ? ": " : "", (int)len,
                  len > 0 ? (const char *)frame->goaway.opaque_data : "");
        session->terminate_submitted = true;
        grpc_client_session_fail(session, frame->goaway.error_code, &err);
    }
    return 0;
}

static int on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                        nghttp2_data_source *source, void *user) {
    struct grpc_client_session *session = user;
    struct grpc_client_stream *stream = source->ptr;
    struct grpc_write_batch *flight = &session->write_batch;
    (void)h2, (void)frame;
    return grpc_output_add_data_frame(flight->output, &stream->out, flight, head, len)
               ? 0
               : NGHTTP2_ERR_WOULDBLOCK;
}

nghttp2_session_callbacks *grpc_client_frames_callbacks(void) {
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
