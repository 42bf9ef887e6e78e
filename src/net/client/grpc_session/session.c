/* The HTTP/2 side of the client: nghttp2's callbacks, what all connections share (options, waiting
 * calls, deadlines), and a connection's start, input, output and end. */
#include "net/client/grpc_session/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/transport/h2_setup.h"

static void grpc_client_session_fail(struct grpc_client_session *session, uint32_t code,
                                     const struct error *err);

enum {
    FIELD_OVERHEAD = 32,    /* RFC 9113, 10.5.1: overhead counted for each field */
    HEADER_ABUSE_RATIO = 8, /* times the limit: ends the connection instead of one call */
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
    /* The server may not have seen our ENABLE_PUSH 0 yet. */
    bool push = frame->hd.type == NGHTTP2_PUSH_PROMISE;
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

/* RFC 9113, 6.8: nghttp2 closes the calls that the server did not process, with on_close for
 * each. */
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
    /* A call that is not read blocks its stream window only, never the connection's. */
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

/* Detects that nghttp2 itself ends the connection with GOAWAY. */
static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct grpc_client_session *session = user;
    struct error err;
    (void)h2;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR &&
        !is_failing(session)) {
        size_t len = frame->goaway.opaque_data_len;
        error_set(&err, ST_BAD_ANSWER, "the server violated HTTP/2: %s%s%.*s",
                  nghttp2_http2_strerror(frame->goaway.error_code), len > 0 ? ": " : "", (int)len,
                  len > 0 ? (const char *)frame->goaway.opaque_data : "");
        session->terminate_submitted = true;
        grpc_client_session_fail(session, frame->goaway.error_code, &err);
    }
    return 0;
}

/* How long a DATA frame may be, up to the windows. */
static ssize_t on_frame_length(nghttp2_session *h2, uint8_t type, int32_t id, int32_t window,
                               int32_t stream_window, uint32_t max_frame_bytes, void *user) {
    const struct grpc_client_stream *stream = stream_of(h2, id);
    (void)user, (void)type, (void)window, (void)stream_window;
    return (ssize_t)(stream ? grpc_send_queue_frame_bytes(&stream->out, max_frame_bytes)
                            : GRPC_SMALL_FRAME_BYTES);
}

static int on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                        nghttp2_data_source *source, void *user) {
    struct grpc_client_session *session = user;
    struct grpc_client_stream *stream = source->ptr;
    struct grpc_write_batch *batch = &session->write_batch;
    (void)h2, (void)frame;
    return grpc_output_add_data_frame(batch->output, &stream->out, batch, head, len)
               ? 0
               : NGHTTP2_ERR_WOULDBLOCK;
}

/* Returns: NULL when out of memory. */
static nghttp2_session_callbacks *grpc_client_frames_callbacks(void) {
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
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_frame_length);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    return callbacks;
}

enum { MAX_POOLED_BYTES = 256 << 20 }; /* memory of large messages, cached for reuse */

/* ---- creating and freeing -------------------------------------------------------------------- */

static uint64_t or_default(uint64_t value, uint64_t otherwise) {
    return value > 0 ? value : otherwise;
}

static void set_default_limits(struct grpc_client_limits *limits) {
    limits->max_message_bytes = or_default(limits->max_message_bytes, 256 << 20);
    limits->setting = limits->setting ? limits->setting : "max_message_bytes";
    limits->max_header_size = or_default(limits->max_header_size, 64 << 10);
    limits->connect_timeout_ns =
        or_default(limits->connect_timeout_ns, UINT64_C(20) * 1000 * 1000 * 1000);
    limits->initial_backoff_ns = or_default(limits->initial_backoff_ns, UINT64_C(100000000));
    limits->max_backoff_ns = or_default(limits->max_backoff_ns, UINT64_C(10) * 1000 * 1000 * 1000);
    limits->stream_window_bytes = (uint32_t)or_default(limits->stream_window_bytes, 4 << 20);
    limits->connection_window_bytes =
        (uint32_t)or_default(limits->connection_window_bytes, 64 << 20);
}

enum status grpc_client_core_init(struct grpc_client_core *core, struct error *err) {
    set_default_limits(&core->limits);
    TAILQ_INIT(&core->waiting);
    core->budget.body_memory = UINT64_MAX;
    body_pool_init(&core->pool, MAX_POOLED_BYTES);
    core->receiver_options =
        (struct grpc_receiver_options){.arenas = core->arenas,
                                       .pool = &core->pool,
                                       .budget = &core->budget,
                                       .max_message_bytes = core->limits.max_message_bytes,
                                       .setting = core->limits.setting};
    core->option = h2_option_new();
    core->callbacks = grpc_client_frames_callbacks();
    if (!core->option || !core->callbacks) {
        grpc_client_core_fini(core);
        return error_no_memory(err, "a gRPC client");
    }
    return ST_OK;
}

void grpc_client_core_fini(struct grpc_client_core *core) {
    assert(core->n_alive == 0);
    nghttp2_option_del(core->option);
    nghttp2_session_callbacks_del(core->callbacks);
    timer_heap_fini(&core->deadlines);
    body_pool_fini(&core->pool);
    free(core->spare_output);
    *core = (struct grpc_client_core){0};
}

uint64_t grpc_client_core_now(const struct grpc_client_core *core) {
    return core->running ? core->now_ns : clock_now_ns();
}

/* ---- calls that wait ------------------------------------------------------------------------- */

void grpc_client_core_dispatch(struct grpc_client_core *core, struct grpc_client_session *session) {
    while (!TAILQ_EMPTY(&core->waiting) && grpc_client_session_can_start_call(session) &&
           grpc_client_stream_start(TAILQ_FIRST(&core->waiting), session)) {
    }
}

void grpc_client_core_fail_waiting(struct grpc_client_core *core, const struct error *err,
                                   bool all) {
    struct grpc_client_stream *stream = TAILQ_FIRST(&core->waiting);
    while (stream) {
        struct grpc_client_stream *next = TAILQ_NEXT(stream, link);
        if (all || !stream->wait_for_ready) {
            grpc_client_stream_set_status(stream, -1, err);
        }
        stream = next;
    }
}

/* ---- finished calls and timers --------------------------------------------------------------- */

void grpc_client_core_sweep(struct grpc_client_core *core) {
    assert(!core->running);
    while (core->ended) {
        struct grpc_client_stream *stream = core->ended;
        core->ended = stream->ended_next;
        stream->in_sweep_list = false;
        grpc_client_stream_sweep(stream);
    }
}

void grpc_client_core_run_timers(struct grpc_client_core *core, uint64_t now_ns) {
    struct timer_node *deadline;
    struct error err;
    core->running = true;
    core->now_ns = now_ns;
    while ((deadline = timer_heap_pop_due(&core->deadlines, now_ns))) {
        struct grpc_client_stream *stream =
            CONTAINER_OF(deadline, struct grpc_client_stream, deadline);
        error_set(&err, ST_DEADLINE_EXCEEDED,
                  stream->state == GRPC_CLIENT_WAITING ? "no connection before the deadline"
                                                       : "no response before the deadline");
        grpc_client_stream_set_status(stream, -1, &err);
    }
    core->running = false;
}

uint64_t grpc_client_core_next_timer_ns(const struct grpc_client_core *core) {
    return timer_heap_next_ns(&core->deadlines);
}

enum {
    MAX_FRAME_BYTES = 1 << 20, /* of DATA: fewer frames for large messages */
    /* Assumed until the server's SETTINGS arrive; RFC 9113, 6.5.2 recommends no fewer. */
    FIRST_STREAMS = 100,
};

/* ---- starting -------------------------------------------------------------------------------- */

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
    TAILQ_INIT(&session->streams);
    int code = nghttp2_session_client_new2(&session->h2, core->callbacks, session, core->option);
    if (code == 0) {
        code = submit_settings(session);
    }
    if (code != 0) {
        nghttp2_session_del(session->h2);
        session->h2 = NULL;
        return error_no_memory(err, "a connection");
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

/* Ends the connection with an HTTP/2 error code, and its calls with `err`. Callable anywhere. */
static void grpc_client_session_fail(struct grpc_client_session *session, uint32_t code,
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
    struct grpc_client_stream *stream;
    while ((stream = TAILQ_FIRST(&session->streams))) {
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
        error_set(&err, ST_BAD_ANSWER, "the server violated HTTP/2: %s", nghttp2_strerror((int)n));
        grpc_client_session_fail(session,
                                 n == NGHTTP2_ERR_FLOODED ? (uint32_t)NGHTTP2_ENHANCE_YOUR_CALM
                                                          : (uint32_t)NGHTTP2_INTERNAL_ERROR,
                                 &err);
    }
}

/* Detects a server of another protocol by its first bytes. Returns: an explanation; NULL: not
 * recognised. */
static const char *other_protocol(struct str first) {
    if (str_starts_with(first, STR("HTTP/"))) {
        return "the server answered in HTTP/1.1: gRPC may have a port of its own";
    }
    if (str_starts_with(first, STR("\x15\x03"))) { /* RFC 8446, 5.1: an alert */
        return "the server expects TLS";
    }
    return NULL;
}

/* Buffers the first bytes until the protocol is known. Returns: whether frames follow. */
static bool receive_first(struct grpc_client_session *session, struct str *data) {
    struct error err;
    size_t capacity = sizeof(session->first) - session->n_first;
    size_t n = data->len < capacity ? data->len : capacity;
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
        session->terminate_submitted = true; /* the peer would not understand GOAWAY */
        grpc_client_session_fail(session, NGHTTP2_PROTOCOL_ERROR, &err);
        return false;
    }
    receive_frames(session, first);
    return true;
}

char *grpc_client_session_read_buffer(struct grpc_client_session *session, size_t *n_bytes) {
    const struct h2_walk *walk = &session->walk;
    if (!grpc_read_place_is_possible(walk) || !session->h2 || is_failing(session)) {
        return NULL;
    }
    struct grpc_client_stream *stream = stream_of(session->h2, walk->frame.stream_id);
    bool receives = stream && !stream->closed && !stream->remote_ended;
    return receives ? grpc_read_place_find(&session->read_place, walk, &stream->in, n_bytes) : NULL;
}

void grpc_client_session_receive(struct grpc_client_session *session, struct str data) {
    struct grpc_client_core *core = session->core;
    assert(!core->running);
    if (!session->h2 || session->error.status != ST_OK) {
        return;
    }
    core->running = true;
    core->now_ns = clock_now_ns();
    h2_walk_add(&session->walk, data); /* a server has no preface: all of it is frames */
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
