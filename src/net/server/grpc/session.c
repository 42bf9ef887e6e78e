/* The HTTP/2 side of the server: nghttp2's callbacks, which find the stream and count what may be
 * abused; what all connections of a worker share (options, routes, deadlines); and a connection's
 * start, input, output and end. */
#include "net/server/grpc/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

enum {
    /* A peer that resets its calls faster than they end has at most this multiple of max_streams
     * alive. */
    MAX_ALIVE_RATIO = 4,
    FIELD_OVERHEAD = 32,         /* RFC 9113, 10.5.1: overhead counted for each field */
    LARGE_BYTES = 1 << 20,       /* from this message size on, larger frames are allowed */
    BEHIND_CHECK_NS = 100000000, /* GRPC_WAIT_BEHIND */
    HEADER_ABUSE_RATIO = 8,      /* times the limit: ends the connection instead of one call */
};

/* Consecutive frames mostly belong to one stream: caches the last lookup. */
static struct grpc_stream *stream_of(struct grpc_session *session, int32_t id) {
    if (!session->recent || session->recent->id != id) {
        session->recent = nghttp2_session_get_stream_user_data(session->h2, id);
    }
    return session->recent;
}

/* Counts a call that ended before its response began, or was refused. */
static void count_reset(struct grpc_session *session) {
    if (!h2_bucket_take(&session->resets, &H2_RESETS_LIMIT, grpc_core_now(session->core))) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "too many resets of unanswered calls");
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_session *session = user;
    session->head_stream = NULL;
    session->head_bytes = 0;
    session->head_wire_bytes = frame->hd.length;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0; /* trailers are not stored, but counted */
    }
    size_t most = (size_t)session->core->options->limits.max_streams * MAX_ALIVE_RATIO;
    struct grpc_stream *stream = NULL;
    if (session->n_alive < most && !session->terminating) {
        stream = grpc_stream_new(session, frame->hd.stream_id);
    }
    if (!stream) { /* RFC 9113, 8.7: safe to retry */
        count_reset(session);
        int code = nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                             NGHTTP2_REFUSED_STREAM);
        return code == 0 ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, stream);
    session->head_stream = session->recent = stream;
    session->window_credit =
        h2_window_credit_add(session->window_credit, H2_WINDOW_CREDIT_PER_STREAM);
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user) {
    struct grpc_session *session = user;
    size_t limit = session->core->options->limits.net.max_header_size;
    (void)h2, (void)frame, (void)flags;
    session->head_bytes += name_len + value_len + FIELD_OVERHEAD;
    if (session->head_bytes > limit * HEADER_ABUSE_RATIO) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "header fields far over the limit of the settings "
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

/* Counts a head, or trailers, that are refused or cost far more than they took to send. */
static void count_large_head(struct grpc_session *session, const struct grpc_stream *stream) {
    bool refused = (stream && stream->head_too_large) ||
                   session->head_bytes > session->core->options->limits.net.max_header_size;
    if ((refused || h2_head_is_inflated(session->head_bytes, session->head_wire_bytes)) &&
        !h2_bucket_take(&session->heads, &H2_HEADS_LIMIT, grpc_core_now(session->core))) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "too many header blocks over --max-header-size, or of repeated table "
                          "entries");
    }
}

static void on_head(struct grpc_session *session, bool is_whole) {
    struct grpc_stream *stream = session->head_stream;
    session->head_stream = NULL;
    count_large_head(session, stream);
    if (stream && !stream->closed) {
        grpc_stream_on_head(stream, is_whole);
    }
}

/* ---- abuse counters -------------------------------------------------------------------------- */

/* Frames that need no call but cost a response or processing. */
static bool is_control(const struct grpc_session *session, const nghttp2_frame *frame) {
    bool ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
        return frame->hd.length == frame->data.padlen &&
               !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    case NGHTTP2_SETTINGS:
        return !ack;
    case NGHTTP2_PING:
        /* Measuring the round trip while data flows is allowed. */
        return !ack && !session->sent_since_ping;
    default:
        return false;
    }
}

static void count_control(struct grpc_session *session) {
    if (!h2_bucket_take(&session->control, &H2_CONTROL_LIMIT, grpc_core_now(session->core))) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "too many pings, settings, priorities, window updates, empty frames or "
                          "frames of unknown types");
    }
}

/* GOAWAY, which says nothing of a call, and types that RFC 9113 does not define (5.5). */
static bool is_ignored(const nghttp2_frame_hd *hd) {
    return hd->type == NGHTTP2_GOAWAY || hd->type > NGHTTP2_CONTINUATION;
}

/* For PRIORITY and WINDOW_UPDATE on a closed stream nghttp2 calls only on_begin_frame. */
static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *hd, void *user) {
    struct grpc_session *session = user;
    (void)h2;
    if (hd->type == NGHTTP2_CONTINUATION) {
        session->head_wire_bytes += hd->length;
    } else if (hd->type == NGHTTP2_WINDOW_UPDATE && session->window_credit > 0) {
        session->window_credit--;
    } else if (hd->type == NGHTTP2_PRIORITY || hd->type == NGHTTP2_WINDOW_UPDATE ||
               is_ignored(hd)) {
        count_control(session);
    }
    return 0;
}

/* ---- frames in ------------------------------------------------------------------------------- */

/* Without it nghttp2 drops a frame of an unknown type before on_begin_frame. */
static int on_unknown_frame(nghttp2_session *h2, void **payload, const nghttp2_frame_hd *hd,
                            void *user) {
    (void)h2, (void)payload, (void)hd, (void)user;
    return NGHTTP2_ERR_CANCEL;
}

/* Of a PING that is not the one after a shutdown notice. */
static const uint8_t KEEPALIVE_DATA[8] = {'k', 'e', 'e', 'p'};

/* The client has received the shutdown notice. */
static int submit_last_goaway(struct grpc_session *session) {
    session->goaway_sent = true;
    int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
    return nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_session *session = user;
    bool ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    (void)h2;
    if (is_control(session, frame)) {
        count_control(session);
    }
    if (frame->hd.type == NGHTTP2_PING) {
        session->sent_since_ping = false;
    }
    if (frame->hd.type == NGHTTP2_SETTINGS) {
        session->settings_received = true;
    }
    if (frame->hd.type == NGHTTP2_PING && ack && session->draining && !session->goaway_sent &&
        memcmp(frame->ping.opaque_data, KEEPALIVE_DATA, sizeof(KEEPALIVE_DATA)) != 0) {
        return submit_last_goaway(session) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS) {
        on_head(session, frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
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
    if (frame->hd.type == NGHTTP2_HEADERS) { /* one stream too many, or a malformed head */
        count_reset(session);
    }
    return 0;
}

/* Allows larger frames to a client that sends large messages. The default size is enough for others
 * and shares the connection fairly. */
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
    /* A call that is not read blocks its stream window only, never the connection's. */
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
    (void)h2, (void)code;
    if (stream) {
        /* The server also resets streams because of invalid frames, so a reset counts whichever
         * side sent it, except those that the server sent by its own decision. The code does not
         * matter: a client may choose NO_ERROR. */
        if (!stream->response_sent && !stream->reset_submitted) {
            count_reset(session);
        }
        if (session->head_stream == stream) {
            session->head_stream = NULL;
        }
        grpc_stream_closed(stream);
    }
    return 0;
}

/* ---- frames out ------------------------------------------------------------------------------ */

/* Detects that nghttp2 itself ends the connection with GOAWAY. */
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
    struct grpc_stream *stream = NULL;
    if (frame->hd.type == NGHTTP2_DATA) {
        session->window_credit = h2_window_credit_add(
            session->window_credit,
            H2_WINDOW_CREDIT_PER_DATA + frame->hd.length / H2_WINDOW_CREDIT_BYTES);
    } else {
        stream = stream_of(session, frame->hd.stream_id);
        if (stream) { /* 100 (Continue) begins no response */
            stream->response_sent = stream->response_state != GRPC_RESPONSE_NONE;
        }
    }
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        stream = stream ? stream : stream_of(session, frame->hd.stream_id);
        if (stream) {
            grpc_stream_set_response_state(stream, GRPC_RESPONSE_SENT);
        }
        if (stream && !stream->remote_ended) {
            grpc_stream_on_early_answer(stream);
        }
    }
    return 0;
}

/* nghttp2 refused to send a head (far too large): resets the stream. */
static int on_not_sent(nghttp2_session *h2, const nghttp2_frame *frame, int code, void *user) {
    struct grpc_session *session = user;
    (void)code;
    if (frame->hd.type == NGHTTP2_HEADERS && stream_of(session, frame->hd.stream_id)) {
        nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_INTERNAL_ERROR);
    }
    return 0;
}

/* How long a DATA frame may be, up to the windows. */
static ssize_t on_frame_length(nghttp2_session *h2, uint8_t type, int32_t id, int32_t window,
                               int32_t stream_window, uint32_t max_frame_bytes, void *user) {
    const struct grpc_stream *stream = stream_of(user, id);
    (void)h2, (void)type, (void)window, (void)stream_window;
    return (ssize_t)(stream ? grpc_send_queue_frame_bytes(&stream->out, max_frame_bytes)
                            : GRPC_SMALL_FRAME_BYTES);
}

static int on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                        nghttp2_data_source *source, void *user) {
    struct grpc_session *session = user;
    struct grpc_write_batch *batch = &session->write_batch;
    struct grpc_stream *stream = source->ptr;
    (void)h2, (void)frame;
    if (!grpc_output_add_data_frame(batch->output, &stream->out, batch, head, len)) {
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    session->n_sent += len;
    grpc_stream_on_sent(stream, len);
    return 0;
}

/* Returns: NULL when out of memory. */
static nghttp2_session_callbacks *grpc_frames_callbacks(void) {
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
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_frame_length);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_unpack_extension_callback(callbacks, on_unknown_frame);
    return callbacks;
}

enum {
    /* disables nghttp2's limit, which also counts resets of answered streams (see
     * net/transport/h2_rate_limit.h) */
    NO_RESET_LIMIT = 1 << 30,
};

static enum status make_option(struct grpc_core *core, struct error *err) {
    core->option = h2_option_new();
    if (!core->option) {
        return error_no_memory(err, "the gRPC server");
    }
    nghttp2_option_set_no_closed_streams(core->option, 1);
    nghttp2_option_set_stream_reset_rate_limit(core->option, NO_RESET_LIMIT, NO_RESET_LIMIT);
    for (int type = NGHTTP2_CONTINUATION + 1; type <= UINT8_MAX; type++) {
        nghttp2_option_set_user_recv_extension_type(core->option, (uint8_t)type);
    }
    return ST_OK;
}

static enum status make_routes(struct grpc_core *core, struct error *err) {
    const struct grpc_server_options *options = core->options;
    core->routes = calloc(options->n_methods + 1, sizeof(*core->routes));
    if (!core->routes) {
        return error_no_memory(err, "the gRPC server");
    }
    for (size_t i = 0; i < options->n_methods; i++) {
        const struct grpc_method *method = &options->methods[i];
        core->routes[i] = (struct grpc_route){str_of(method->path), method};
    }
    return ST_OK;
}

enum status grpc_core_init(struct grpc_core *core, const struct grpc_server_options *options,
                           struct worker *worker, struct error *err) {
    core->options = options;
    core->worker = worker;
    TAILQ_INIT(&core->inflating);
    TAILQ_INIT(&core->scheduled);
    STAILQ_INIT(&core->closing);
    core->inflate_left = INFLATE_SLICE_BYTES;
    core->receiver_options =
        (struct grpc_receiver_options){.arenas = worker_arenas(worker),
                                       .pool = core->pool,
                                       .budget = options->budget,
                                       .max_message_bytes = options->limits.net.max_body_size,
                                       .message_memory_bytes = options->limits.net.request_memory,
                                       .setting = "--max-body-size"};
    core->small_receiver_options = core->receiver_options;
    if (core->small_receiver_options.max_message_bytes > GRPC_SMALL_MESSAGE_BYTES) {
        core->small_receiver_options.max_message_bytes = GRPC_SMALL_MESSAGE_BYTES;
        core->small_receiver_options.setting = "the limit of this method";
    }
    timer_list_init(&core->stream_timers);
    core->stream_timers.after_ns[GRPC_WAIT_MESSAGE] = options->limits.net.body_timeout_ns;
    core->stream_timers.after_ns[GRPC_WAIT_BEHIND] = BEHIND_CHECK_NS;
    core->stream_timers.after_ns[GRPC_WAIT_WINDOW] = options->limits.net.write_timeout_ns;
    enum status st = make_option(core, err);
    if (st == ST_OK) {
        st = make_routes(core, err);
    }
    if (st == ST_OK) {
        core->callbacks = grpc_frames_callbacks();
        st = core->callbacks ? ST_OK : error_no_memory(err, "the gRPC server");
    }
    if (st != ST_OK) {
        grpc_core_fini(core);
    }
    return st;
}

void grpc_core_fini(struct grpc_core *core) {
    assert(!core->ended && STAILQ_EMPTY(&core->closing) && TAILQ_EMPTY(&core->scheduled));
    nghttp2_option_del(core->option);
    nghttp2_session_callbacks_del(core->callbacks);
    timer_heap_fini(&core->deadlines);
    free(core->routes);
    free(core->spare_output);
    *core = (struct grpc_core){0};
}

const struct grpc_method *grpc_core_find_method(const struct grpc_core *core, struct str path) {
    for (size_t i = 0; i < core->options->n_methods; i++) {
        if (str_eq(path, core->routes[i].path)) {
            return core->routes[i].method;
        }
    }
    return NULL;
}

uint64_t grpc_core_now(const struct grpc_core *core) {
    return core->running ? core->now_ns : clock_now_ns();
}

/* ---- deferred work --------------------------------------------------------------------------- */

void grpc_core_schedule_write(struct grpc_core *core, struct grpc_session *session) {
    if (session && session->h2 && !session->closing && !session->scheduled) {
        session->scheduled = true;
        session->in_schedule = true;
        TAILQ_INSERT_TAIL(&core->scheduled, session, scheduled_link);
    }
    core->schedule_deferred(core);
}

static void remove_from_schedule(struct grpc_core *core, struct grpc_session *session) {
    session->in_schedule = false;
    TAILQ_REMOVE(&core->scheduled, session, scheduled_link);
}

struct grpc_session *grpc_core_take_scheduled(struct grpc_core *core) {
    struct grpc_session *first = TAILQ_FIRST(&core->scheduled);
    if (first) {
        remove_from_schedule(core, first);
    }
    return first;
}

void grpc_core_inflate_more(struct grpc_core *core) {
    struct grpc_stream *stream;
    assert(!core->running);
    core->inflate_left = INFLATE_SLICE_BYTES;
    if (TAILQ_EMPTY(&core->inflating)) {
        return;
    }
    core->running = true;
    core->now_ns = clock_now_ns();
    while (core->inflate_left > 0 && (stream = TAILQ_FIRST(&core->inflating))) {
        TAILQ_REMOVE(&core->inflating, stream, inflating_link);
        stream->inflating = false;
        grpc_receive_inflate_more(stream);
    }
    core->running = false;
}

/* Each takes some microseconds. */
enum { MAX_CLOSED_PER_SWEEP = 128, MAX_DRAINED_PER_ITERATION = 128 };

/* Closes at most `most` streams, the oldest first. Returns: how many. */
static size_t close_some(struct grpc_session *session, size_t most) {
    struct grpc_stream *stream;
    size_t n = 0;
    while ((stream = TAILQ_FIRST(&session->streams)) && n < most) {
        if (!stream->closed) {
            grpc_stream_closed(stream);
        }
        grpc_stream_unlink(stream);
        n++;
    }
    if (!stream) {
        nghttp2_session_del(session->h2);
        session->h2 = NULL;
    }
    return n;
}

static void close_more(struct grpc_core *core) {
    struct grpc_session *session;
    size_t n = 0;
    while (n < MAX_CLOSED_PER_SWEEP && (session = STAILQ_FIRST(&core->closing))) {
        n += close_some(session, MAX_CLOSED_PER_SWEEP - n);
        if (!session->h2) {
            STAILQ_REMOVE_HEAD(&core->closing, closing_link);
            if (core->on_closed) {
                core->on_closed(session); /* may free it */
            }
        }
    }
}

/* All of them end at the same time. */
bool grpc_core_sweep(struct grpc_core *core) {
    assert(!core->running);
    core->running = true;
    core->now_ns = core->ended || !STAILQ_EMPTY(&core->closing) ? clock_now_ns() : 0;
    close_more(core);
    while (core->ended) {
        struct grpc_stream *stream = core->ended;
        core->ended = stream->ended_next;
        stream->in_sweep_list = false;
        if (grpc_stream_can_free(stream)) { /* else it is scheduled again when it can be freed */
            grpc_stream_free(stream);
        }
    }
    core->running = false;
    return !STAILQ_EMPTY(&core->closing);
}

/* ---- timers ---------------------------------------------------------------------------------- */

/* Of those that are due at once; the others follow in the next iteration. */
enum { MAX_TIMERS_PER_ITERATION = 128 };

void grpc_core_run_timers(struct grpc_core *core, uint64_t now_ns) {
    struct timer_node *deadline;
    struct list_timer *timeout;
    struct error err;
    size_t n = 0;
    core->running = true;
    core->now_ns = now_ns;
    while (n++ < MAX_TIMERS_PER_ITERATION &&
           (deadline = timer_heap_pop_due(&core->deadlines, now_ns))) {
        error_set(&err, ST_DEADLINE_EXCEEDED, "the call's deadline has passed (grpc-timeout)");
        grpc_stream_cancel(CONTAINER_OF(deadline, struct grpc_stream, deadline), &err);
    }
    while (n++ < MAX_TIMERS_PER_ITERATION &&
           (timeout = timer_list_pop_due(&core->stream_timers, now_ns))) {
        grpc_stream_timed_out(CONTAINER_OF(timeout, struct grpc_stream, timeout),
                              (enum grpc_wait)timeout->timer_class);
    }
    core->running = false;
}

uint64_t grpc_core_next_timer_ns(const struct grpc_core *core) {
    uint64_t a = timer_heap_next_ns(&core->deadlines), b = timer_list_next_ns(&core->stream_timers);
    return a < b ? a : b;
}

/* Response to HTTP/1.1 requests. */
#define PLAIN_TEXT                                                                                 \
    "This port speaks gRPC: HTTP/2 from the first byte. HTTP/1.1 has a port of its own (--http)\n"
static const char PLAIN_ANSWER[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
                                   "Content-Type: text/plain\r\n"
                                   "Content-Length: 91\r\n"
                                   "Connection: close\r\n\r\n" PLAIN_TEXT;
static_assert(sizeof(PLAIN_TEXT) - 1 == 91, "its length stands in the answer");

enum {
    /* Frames queued for a peer that does not read: above this, it is not read either. */
    MAX_QUEUED = 1000,
    /* A drain does not wait for a streaming call that has had no message for so long. */
    FIRST_MESSAGE_NS = 1000000000,
    STEP_BYTES = 256,      /* of whole frames: a small call or a few */
    MAX_STEP_BYTES = 2048, /* of a frame that may contain many messages */
};

/* ---- starting -------------------------------------------------------------------------------- */

static int submit_settings(const struct grpc_session *session) {
    const struct grpc_limits *limits = &session->core->options->limits;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits->stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)limits->net.max_header_size},
    };
    int code = nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings,
                                       sizeof(settings) / sizeof(settings[0]));
    if (code == 0) {
        code = nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0,
                                                     (int32_t)limits->connection_window_bytes);
    }
    return code;
}

void grpc_session_init(struct grpc_session *session, struct grpc_core *core) {
    session->core = core;
    TAILQ_INIT(&session->streams);
}

enum status grpc_session_open(struct grpc_session *session, struct error *err) {
    struct grpc_core *core = session->core;
    nghttp2_mem memory = h2_memory_functions(&session->memory);
    int code =
        nghttp2_session_server_new3(&session->h2, core->callbacks, session, core->option, &memory);
    if (code == 0) {
        code = submit_settings(session);
    }
    if (code != 0) {
        nghttp2_session_del(session->h2);
        session->h2 = NULL;
        return error_no_memory(err, "a connection");
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

void grpc_session_reject(struct grpc_session *session, const struct error *err) {
    struct str text = str_of(err->text);
    session->terminating = session->terminate_submitted = true;
    session->preface.result = H2_PREFACE_OK; /* does not wait for the preface */
    nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, 0, NGHTTP2_ENHANCE_YOUR_CALM,
                          (const uint8_t *)text.ptr, text.len);
    grpc_core_schedule_write(session->core, session);
}

static bool lacks_message(const struct grpc_stream *stream) {
    return !stream->closed && stream->method_state == GRPC_METHOD_ACTIVE &&
           stream->call.method->streams && !stream->message_delivered && !stream->remote_ended &&
           stream->core->now_ns - stream->begun_ns >= FIRST_MESSAGE_NS;
}

/* They would last as long as the drain. Their clients lose nothing: no message was sent. */
bool grpc_session_drain_some(struct grpc_session *session) {
    struct grpc_core *core = session->core;
    struct error err;
    if (!session->drain_next) {
        return false;
    }
    error_set(&err, ST_NOT_READY, "the server is being stopped");
    core->now_ns = clock_now_ns();
    core->running = true;
    for (int n = 0; n < MAX_DRAINED_PER_ITERATION && session->drain_next; n++) {
        struct grpc_stream *stream = session->drain_next;
        session->drain_next = TAILQ_NEXT(stream, link);
        if (lacks_message(stream)) {
            grpc_stream_cancel(stream, &err);
        }
    }
    core->running = false;
    return session->drain_next != NULL;
}

/* RFC 9113, 6.8: first a shutdown notice; after the client's PING ACK, GOAWAY with the last stream
 * id. Calls that the client starts in between are served. */
void grpc_session_drain(struct grpc_session *session) {
    if (session->draining || !session->h2) {
        return;
    }
    session->draining = true;
    session->drain_next = TAILQ_FIRST(&session->streams);
    (void)grpc_session_drain_some(session);
    nghttp2_submit_shutdown_notice(session->h2);
    nghttp2_submit_ping(session->h2, NGHTTP2_FLAG_NONE, NULL);
    grpc_core_schedule_write(session->core, session);
}

void grpc_session_end(struct grpc_session *session) {
    if (session->h2 && !session->goaway_sent) {
        session->draining = true;
        (void)submit_last_goaway(session); /* else the connection is closed without it */
        grpc_core_schedule_write(session->core, session);
    }
}

void grpc_session_ping(struct grpc_session *session) {
    if (session->h2 && session->settings_received && !session->terminating) {
        nghttp2_submit_ping(session->h2, NGHTTP2_FLAG_NONE, KEEPALIVE_DATA);
        grpc_core_schedule_write(session->core, session);
    }
}

bool grpc_session_had_call(const struct grpc_session *session) {
    return session->h2 && nghttp2_session_get_last_proc_stream_id(session->h2) > 0;
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
    struct grpc_core *core = session->core;
    if (!session->h2 || session->closing) {
        return;
    }
    session->closing = true;
    session->drain_next = NULL;
    if (session->in_schedule) {
        session->scheduled = false;
        remove_from_schedule(core, session);
    }
    close_some(session, MAX_CLOSED_PER_SWEEP);
    if (session->h2) {
        STAILQ_INSERT_TAIL(&core->closing, session, closing_link);
        grpc_core_schedule_write(core, NULL);
    }
}

size_t grpc_session_end_stalled_calls(struct grpc_session *session, uint64_t since_ns) {
    struct grpc_stream *stream;
    size_t n = 0;
    TAILQ_FOREACH(stream, &session->streams, link) { /* streams are freed by the sweep, later */
        n += grpc_stream_end_if_stalled(stream, since_ns);
    }
    return n;
}

/* ---- bytes in -------------------------------------------------------------------------------- */

static void receive_frames(struct grpc_session *session, struct str data) {
    ssize_t n = nghttp2_session_mem_recv(session->h2, (const uint8_t *)data.ptr, data.len);
    if (n == NGHTTP2_ERR_FLOODED) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "too many unanswered pings or settings");
    } else if (n == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM, "a header block in too many frames");
    } else if (n < 0) {
        grpc_session_fail(session, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror((int)n));
    }
}

/* Entries of a few bytes, which HPACK counts with 32 more each, take some 170 with what the heap
 * adds to three small blocks; what usual heads put into the table is part of the connection. */
enum { TABLE_COUNT_FACTOR = 7, TABLE_FREE_BYTES = 1024 };

static uint64_t table_memory(size_t n_bytes) {
    return n_bytes > TABLE_FREE_BYTES ? (n_bytes - TABLE_FREE_BYTES) * TABLE_COUNT_FACTOR : 0;
}

/* Counts what the client's HPACK table takes now. */
static void count_table(struct grpc_session *session) {
    size_t n_bytes = session->h2 ? nghttp2_session_get_hd_inflate_dynamic_table_size(session->h2)
                                 : session->n_table_bytes;
    uint64_t counted = table_memory(session->n_table_bytes), needed = table_memory(n_bytes);
    if (needed <= counted) {
        memory_conn_subtract(session->account, MEMORY_CONN_STATE, counted - needed);
    } else if (!memory_conn_add(session->account, MEMORY_CONN_STATE, needed - counted)) {
        grpc_session_fail(session, NGHTTP2_ENHANCE_YOUR_CALM,
                          "no memory for its table of header fields (--client-memory)");
        return;
    }
    session->n_table_bytes = n_bytes;
}

/* Returns: whether HTTP/2 frames follow. */
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
        session->plain_reply_sent = true; /* the peer would not understand GOAWAY */
        break;
    case H2_PREFACE_MORE:
        break;
    }
    return false;
}

size_t grpc_session_next_step(const struct grpc_session *session, struct str data) {
    size_t n = data.len, most = data.len;
    if (session->preface.result == H2_PREFACE_MORE) {
        most = H2_PREFACE_BYTES - session->preface.n;
    } else if (data.len > STEP_BYTES && !session->terminating) {
        n = h2_scan_find_frame_end(&session->scan, data, STEP_BYTES);
        most = session->message_bytes_left < MAX_STEP_BYTES ? MAX_STEP_BYTES
                                                            : (size_t)session->message_bytes_left;
    }
    return n < most ? n : most;
}

char *grpc_session_read_buffer(struct grpc_session *session, size_t *n_bytes) {
    const struct h2_walk *walk = &session->scan.walk;
    if (!grpc_read_place_is_possible(walk) || session->terminating || !session->h2) {
        return NULL;
    }
    struct grpc_stream *stream = stream_of(session, walk->frame.stream_id);
    bool receives = stream && !stream->closed && !stream->remote_ended;
    return receives ? grpc_read_place_find(&session->read_place, walk, &stream->in, n_bytes) : NULL;
}

void grpc_session_receive(struct grpc_session *session, struct str data) {
    struct grpc_core *core = session->core;
    assert(!core->running);
    if (session->terminating) {
        return;
    }
    core->running = true;
    core->now_ns = clock_now_ns();
    session->n_received += data.len;
    if (receive_preface(session, &data) && data.len > 0) {
        size_t n_good = h2_scan_add(&session->scan, data);
        receive_frames(session, str_make(data.ptr, n_good));
        count_table(session);
        if (n_good < data.len) {
            grpc_session_fail(session, NGHTTP2_STREAM_CLOSED,
                              "a frame after the end of its stream");
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
    /* Nothing is sent before the client's first bytes: it may use HTTP/1.1. */
    return session->plain_reply.len > 0 ||
           (session->preface.result == H2_PREFACE_OK &&
            ((session->terminating && !session->terminate_submitted) ||
             nghttp2_session_want_write(session->h2)));
}

bool grpc_session_collect_output(struct grpc_session *session, struct grpc_output *output) {
    struct grpc_core *core = session->core;
    assert(!core->running && !session->write_batch.writing);
    grpc_output_clear(output);
    if (session->terminating && !session->terminate_submitted) {
        session->terminate_submitted = true; /* nghttp2 does not allow that inside its callbacks */
        nghttp2_session_terminate_session(session->h2, session->error_code);
    }
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
    grpc_core_schedule_write(session->core, session); /* more output, or the session is done */
}
