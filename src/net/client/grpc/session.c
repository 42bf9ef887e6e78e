/* A connection: how it begins, what is done with its bytes, how it ends. What the frames in them
 * mean is frames.c's. */
#include "net/client/grpc/session.h"

#include <assert.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"

enum {
    MAX_FRAME_BYTES = 1 << 20, /* of DATA: fewer frames of large messages */
    /* At once, before the server has told how many it takes. (RFC 9113, 6.5.2: it should take no
     * fewer.) */
    FIRST_STREAMS = 100,
};

/* ---- beginning ------------------------------------------------------------------------------- */

static int submit_settings(const struct grpc_client_session *session) {
    const struct grpc_client_limits *limits = &session->core->limits;
    uint32_t header_bytes =
        limits->max_header_size < UINT32_MAX ? (uint32_t)limits->max_header_size : UINT32_MAX;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits->stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, MAX_FRAME_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, header_bytes},
    };
    int code = nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings,
                                       sizeof(settings) / sizeof(settings[0]));
    if (code == 0) {
        code = nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0,
                                                     (int32_t)limits->connection_window_bytes);
    }
    return code;
}

enum status grpc_client_session_open(struct grpc_client_core *core,
                                     struct grpc_client_session *session, struct error *err) {
    session->core = core;
    nghttp2_mem mem = h2_mem_from_blocks(&core->blocks);
    int code =
        nghttp2_session_client_new3(&session->h2, core->callbacks, session, core->option, &mem);
    if (code == 0) {
        code = submit_settings(session);
    }
    if (code != 0) {
        nghttp2_session_del(session->h2);
        session->h2 = NULL;
        return error_set(err, ST_NO_MEMORY, "no memory for a connection");
    }
    grpc_client_session_schedule_write(session);
    return ST_OK;
}

void grpc_client_session_schedule_write(struct grpc_client_session *session) {
    session->needs_io = true;
    session->core->schedule_deferred(session->core);
}

bool grpc_client_session_can_start_call(const struct grpc_client_session *session) {
    uint32_t most = FIRST_STREAMS;
    if (!session->h2 || session->going_away || session->error.status != ST_OK) {
        return false;
    }
    if (session->settings_received) {
        most = nghttp2_session_get_remote_settings(session->h2,
                                                   NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    }
    return session->n_open < most;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void grpc_client_session_fail(struct grpc_client_session *session, uint32_t code,
                              const struct error *err) {
    if (session->error.status == ST_OK) {
        session->error = *err;
        session->error_code = code;
        session->going_away = true;
    }
    grpc_client_session_schedule_write(session);
}

void grpc_client_session_send_goaway(struct grpc_client_session *session) {
    if (!session->going_away) {
        session->going_away = true;
        nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
        grpc_client_session_schedule_write(session);
    }
}

bool grpc_client_session_is_done(const struct grpc_client_session *session) {
    if (session->write_batch.writing || grpc_client_session_has_output(session)) {
        return false;
    }
    return session->error.status != ST_OK || !nghttp2_session_want_read(session->h2) ||
           (session->going_away && session->n_open == 0);
}

const struct error *grpc_client_session_close_reason(const struct grpc_client_session *session,
                                                     const struct error *err) {
    if (session->error.status != ST_OK) {
        return &session->error;
    }
    return session->goaway_error.status != ST_OK ? &session->goaway_error : err;
}

void grpc_client_session_close(struct grpc_client_session *session, const struct error *err) {
    if (!session->h2) {
        return;
    }
    session->going_away = true;
    while (session->streams.first) {
        struct grpc_client_stream *stream = session->streams.first;
        if (!stream->remote_ended) {
            grpc_client_stream_set_status(stream, -1,
                                          grpc_client_session_close_reason(session, err));
        }
        grpc_client_stream_closed(stream);
    }
    nghttp2_session_del(session->h2);
    session->h2 = NULL;
    session->core->schedule_deferred(session->core);
}

/* ---- bytes in -------------------------------------------------------------------------------- */

static void receive_frames(struct grpc_client_session *session, struct str data) {
    struct error err;
    ssize_t n = nghttp2_session_mem_recv(session->h2, (const uint8_t *)data.ptr, data.len);
    if (n < 0) {
        error_set(&err, ST_BAD_ANSWER, "the server broke a rule of HTTP/2: %s",
                  nghttp2_strerror((int)n));
        grpc_client_session_fail(session,
                                 n == NGHTTP2_ERR_FLOODED ? (uint32_t)NGHTTP2_ENHANCE_YOUR_CALM
                                                          : (uint32_t)NGHTTP2_INTERNAL_ERROR,
                                 &err);
    }
}

/* Servers of something else are known by their first bytes. Returns: what it is; NULL: nothing
 * known. */
static const char *other_protocol(struct str first) {
    if (str_starts_with(first, STR("HTTP/"))) {
        return "the server answered in HTTP/1.1: gRPC may have a port of its own";
    }
    if (str_starts_with(first, STR("\x15\x03"))) { /* RFC 8446, 5.1: an alert */
        return "the server expects TLS";
    }
    return NULL;
}

/* Holds the first bytes back until it is clear what they are. Returns: whether frames follow. */
static bool receive_first(struct grpc_client_session *session, struct str *data) {
    struct error err;
    size_t room = sizeof(session->first) - session->n_first;
    size_t n = data->len < room ? data->len : room;
    memcpy(session->first + session->n_first, data->ptr, n);
    session->n_first += n;
    *data = str_make(data->ptr + n, data->len - n);
    if (n == 0 || session->n_first < sizeof(session->first)) {
        return n == 0;
    }
    struct str first = str_make(session->first, session->n_first);
    const char *other = other_protocol(first);
    if (other) {
        error_set(&err, ST_BAD_ANSWER, "%s", other);
        session->terminate_submitted = true; /* it would not understand */
        grpc_client_session_fail(session, NGHTTP2_PROTOCOL_ERROR, &err);
        return false;
    }
    receive_frames(session, first);
    return true;
}

void grpc_client_session_receive(struct grpc_client_session *session, struct str data) {
    struct grpc_client_core *core = session->core;
    assert(!core->running);
    if (!session->h2 || session->error.status != ST_OK) {
        return;
    }
    core->running = true;
    core->now_ns = clock_now_ns();
    if (receive_first(session, &data) && data.len > 0 && session->error.status == ST_OK) {
        receive_frames(session, data);
    }
    core->running = false;
    grpc_client_session_schedule_write(session);
}

/* ---- bytes out ------------------------------------------------------------------------------- */

bool grpc_client_session_has_output(const struct grpc_client_session *session) {
    if (!session->h2 || session->write_batch.writing) {
        return false;
    }
    if (session->error.status != ST_OK) {
        return !session->terminate_submitted ||
               (session->settings_received && nghttp2_session_want_write(session->h2));
    }
    return nghttp2_session_want_write(session->h2);
}

bool grpc_client_session_collect_output(struct grpc_client_session *session,
                                        struct grpc_output *output) {
    struct grpc_client_core *core = session->core;
    struct error err;
    assert(!core->running && !session->write_batch.writing);
    if (session->error.status != ST_OK && !session->terminate_submitted) {
        session->terminate_submitted = true;
        nghttp2_session_terminate_session(session->h2, session->error_code);
    }
    grpc_output_clear(output);
    core->running = true;
    core->now_ns = clock_now_ns();
    session->write_batch.output = output;
    int code = grpc_output_collect(output, session->h2);
    session->write_batch.output = NULL;
    core->running = false;
    if (code != 0) {
        error_set(&err, ST_NO_MEMORY, "a connection failed: %s", nghttp2_strerror(code));
        grpc_client_session_fail(session, NGHTTP2_INTERNAL_ERROR, &err);
    }
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)output->n_copied);
    session->write_batch.writing = output->n > 0;
    return session->write_batch.writing;
}

void grpc_client_session_on_written(struct grpc_client_session *session) {
    grpc_write_batch_complete(&session->write_batch, grpc_client_stream_on_message_sent);
}
