/* A connection: how it begins, what is done with its bytes, how it ends. What the frames in them
 * mean is frames.c's. */
#include <assert.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/server/grpc/session.h"

/* For who speaks HTTP/1.1 to this port. */
#define PLAIN_TEXT                                                                                 \
    "This port speaks gRPC: HTTP/2 from the first byte. HTTP/1.1 has a port of its own (--http)\n"
static const char PLAIN_ANSWER[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
                                   "Content-Type: text/plain\r\n"
                                   "Content-Length: 91\r\n"
                                   "Connection: close\r\n\r\n" PLAIN_TEXT;
static_assert(sizeof(PLAIN_TEXT) - 1 == 91, "its length stands in the answer");

enum {
    /* Heads of answers that wait for a peer who does not read: it is not read from either. */
    MAX_QUEUED = 1000,
};

/* ---- beginning ------------------------------------------------------------------------------- */

static int submit_settings(const struct grpc_session *session) {
    const struct grpc_limits *limits = &session->core->options->limits;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits->stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)limits->max_header_size},
    };
    int code = nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings,
                                       sizeof(settings) / sizeof(settings[0]));
    if (code == 0) {
        code = nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0,
                                                     (int32_t)limits->connection_window_bytes);
    }
    return code;
}

enum status grpc_session_open(struct grpc_core *core, struct grpc_session *session,
                              struct error *err) {
    session->core = core;
    nghttp2_mem mem = h2_mem_from_blocks(&core->blocks);
    int code =
        nghttp2_session_server_new3(&session->h2, core->callbacks, session, core->option, &mem);
    if (code == 0) {
        code = submit_settings(session);
    }
    if (code != 0) {
        nghttp2_session_del(session->h2);
        session->h2 = NULL;
        return error_set(err, ST_NO_MEMORY, "no memory for a connection");
    }
    return ST_OK;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void grpc_session_fail(struct grpc_session *session, uint32_t code, const char *why) {
    struct grpc_core *core = session->core;
    struct error err;
    if (session->terminating) {
        return;
    }
    session->terminating = true;
    session->error_code = code;
    if (core->on_refused) {
        error_set(&err, ST_BAD_REQUEST, "%s", why);
        core->on_refused(session, &err, true);
    }
    grpc_core_schedule_write(core, session);
}

void grpc_session_submit_terminate(struct grpc_session *session) {
    if (session->terminating && !session->terminate_submitted) {
        session->terminate_submitted = true;
        nghttp2_session_terminate_session(session->h2, session->error_code);
    }
}

void grpc_session_reject(struct grpc_session *session, const struct error *err) {
    struct str text = str_of(err->text);
    session->terminating = session->terminate_submitted = true;
    session->preface.result = H2_PREFACE_OK; /* it is not waited for */
    nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, 0, NGHTTP2_ENHANCE_YOUR_CALM,
                          (const uint8_t *)text.ptr, text.len);
    grpc_core_schedule_write(session->core, session);
}

/* RFC 9113, 6.8: first a notice, and when the client has surely seen it, which calls were the last.
 * Those that it began in between are served. */
void grpc_session_drain(struct grpc_session *session) {
    if (session->draining || !session->h2) {
        return;
    }
    session->draining = true;
    nghttp2_submit_shutdown_notice(session->h2);
    nghttp2_submit_ping(session->h2, NGHTTP2_FLAG_NONE, NULL);
    grpc_core_schedule_write(session->core, session);
}

bool grpc_session_wants_input(const struct grpc_session *session) {
    return session->h2 && !session->terminating &&
           !(session->write_batch.writing &&
             nghttp2_session_get_outbound_queue_size(session->h2) > MAX_QUEUED);
}

bool grpc_session_is_done(const struct grpc_session *session) {
    bool ends = session->terminating || session->plain_reply_sent ||
                !nghttp2_session_want_read(session->h2) ||
                (session->goaway_sent && session->n_open == 0);
    return ends && !session->write_batch.writing && !grpc_session_has_output(session);
}

void grpc_session_close(struct grpc_session *session) {
    if (!session->h2) {
        return;
    }
    for (struct grpc_stream *stream = session->streams; stream; stream = stream->next) {
        if (!stream->closed) {
            grpc_stream_closed(stream);
        }
    }
    while (session->streams) {
        struct grpc_stream *stream = session->streams;
        session->streams = stream->next;
        stream->session = NULL;
        stream->prev = stream->next = NULL;
    }
    nghttp2_session_del(session->h2);
    session->h2 = NULL;
    grpc_core_unschedule(session->core, session);
}

/* ---- bytes in -------------------------------------------------------------------------------- */

static void receive_frames(struct grpc_session *session, struct str data) {
    ssize_t n = nghttp2_session_mem_recv(session->h2, (const uint8_t *)data.ptr, data.len);
    if (n == NGHTTP2_ERR_FLOODED) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "more pings or settings than were answered yet");
    } else if (n == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "a head in more frames than any client needs");
    } else if (n < 0) {
        grpc_session_fail(session, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror((int)n));
    }
}

/* Returns: whether HTTP/2 begins behind it. */
static bool receive_preface(struct grpc_session *session, struct str *data) {
    if (session->preface.result == H2_PREFACE_OK) {
        return true;
    }
    switch (h2_preface_add(&session->preface, data)) {
    case H2_PREFACE_OK:
        receive_frames(session, str_make(session->preface.bytes, H2_PREFACE_BYTES));
        return true;
    case H2_PREFACE_HTTP1:
        grpc_session_fail(session, NGHTTP2_HTTP_1_1_REQUIRED, "HTTP/1.1 on a port for gRPC");
        session->plain_reply = str_make(PLAIN_ANSWER, sizeof(PLAIN_ANSWER) - 1);
        break;
    case H2_PREFACE_OTHER:
        grpc_session_fail(session, NGHTTP2_PROTOCOL_ERROR,
                          "the first bytes are not the preface of HTTP/2");
        session->plain_reply_sent = true; /* there is nobody who would understand an answer */
        break;
    case H2_PREFACE_MORE:
        break;
    }
    return false;
}

void grpc_session_receive(struct grpc_session *session, struct str data) {
    struct grpc_core *core = session->core;
    assert(!core->running);
    if (session->terminating) {
        return;
    }
    core->running = true;
    core->now_ns = clock_now_ns();
    if (receive_preface(session, &data) && data.len > 0) {
        bool good = h2_scan_add(&session->scan, data);
        receive_frames(session, data);
        if (!good) {
            grpc_session_fail(session, NGHTTP2_STREAM_CLOSED, "a frame behind its stream's end");
        }
    }
    core->running = false;
    grpc_core_schedule_write(core, session);
}

/* ---- bytes out ------------------------------------------------------------------------------- */

bool grpc_session_has_output(const struct grpc_session *session) {
    if (!session->h2 || session->write_batch.writing || session->plain_reply_sent) {
        return false;
    }
    /* Nothing is said before the client has spoken: it may be one of HTTP/1.1. */
    return session->plain_reply.len > 0 ||
           (session->preface.result == H2_PREFACE_OK &&
            ((session->terminating && !session->terminate_submitted) ||
             nghttp2_session_want_write(session->h2)));
}

bool grpc_session_collect_output(struct grpc_session *session, struct grpc_output *output) {
    struct grpc_core *core = session->core;
    assert(!core->running && !session->write_batch.writing);
    grpc_output_clear(output);
    grpc_session_submit_terminate(session);
    core->running = true;
    core->now_ns = clock_now_ns();
    session->write_batch.output = output;
    if (session->plain_reply.len > 0) {
        grpc_output_add_copy(output, session->plain_reply.ptr, session->plain_reply.len);
        session->plain_reply_sent = true;
    } else {
        int code = grpc_output_collect(output, session->h2);
        if (code != 0) {
            grpc_session_fail(session, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror(code));
        }
    }
    session->write_batch.output = NULL;
    core->running = false;
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)output->n_copied);
    session->write_batch.writing = output->n > 0;
    return session->write_batch.writing;
}

void grpc_session_on_written(struct grpc_session *session) {
    grpc_write_batch_complete(&session->write_batch, grpc_send_on_message_sent);
    grpc_core_schedule_write(session->core, session); /* more to collect, or over */
}
