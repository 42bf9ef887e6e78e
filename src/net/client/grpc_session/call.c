/* A call: it waits for a connection, is started on one, receives its response, and ends with the
 * first status that the caller, the server or its deadline sets.
 *
 * The status of a response comes in the trailers, with the head, or is derived from the HTTP status
 * when a proxy answered. Nothing in a response is trusted. */
#include <assert.h>

#include "codec/grpc/status.h"
#include "core/base/compiler.h"
#include "core/base/transition.h"
#include "core/event/clock.h"
#include "net/client/grpc_session/session.h"

static void grpc_client_stream_emit(struct grpc_client_stream *stream,
                                    enum grpc_client_event event);

/* Ends the call: the server violated the protocol. */
static void set_protocol_error(struct grpc_client_stream *stream, const char *what) {
    struct error err;
    error_set(&err, ST_BAD_ANSWER, "%s", what);
    grpc_client_stream_set_status(stream, -1, &err);
}

/* Returns window for bytes that are dropped or stored: the server may send more. */
static void consume_window(struct grpc_client_stream *stream, size_t n_bytes) {
    if (n_bytes > 0 && !stream->closed && !stream->remote_ended && stream->session) {
        nghttp2_session_consume_stream(stream->session->h2, stream->id, n_bytes);
        grpc_client_session_schedule_write(stream->session);
    }
}

/* ---- the status ------------------------------------------------------------------------------ */

static struct str find_trailer(const struct grpc_client_stream *stream, const char *name,
                               size_t *n) {
    return grpc_fields_find(stream->trailers.items, stream->trailers.n, name, n);
}

/* gRPC over HTTP2, "Responses". */
static void set_status_from_trailers(struct grpc_client_stream *stream, struct str status) {
    struct error err;
    int code;
    if (!grpc_code_parse(status, &code)) {
        error_set(&err, ST_BAD_ANSWER, "the server's grpc-status is \"%.*s\", expected a number",
                  STR_ARG(status));
        grpc_client_stream_set_status(stream, -1, &err);
        return;
    }
    if (code == GRPC_CODE_OK && !stream->streams && stream->in.n_reads_wanted > 0) {
        set_protocol_error(stream, "the server said OK without a message");
        return;
    }
    struct str text = find_trailer(stream, "grpc-message", NULL);
    text = grpc_status_message_parse(stream->call.arena, text);
    if (code == GRPC_CODE_OK) {
        error_set(&err, ST_OK, "%s", "");
    } else if (text.len == 0) {
        error_set(&err, ST_REFUSED, "the server gave no reason");
    } else {
        error_set(&err, ST_REFUSED, "%.*s", STR_ARG(text));
    }
    grpc_client_stream_set_status(stream, code, &err);
}

/* The whole response was received and delivered. */
static void set_status_at_end(struct grpc_client_stream *stream) {
    size_t n;
    struct str status = find_trailer(stream, "grpc-status", &n);
    if (!grpc_receiver_is_at_boundary(&stream->in)) {
        set_protocol_error(stream, "the server ended the call within a message");
    } else if (n != 1) {
        set_protocol_error(stream, n == 0 ? "the server ended the call without a status"
                                          : "the server ended the call with several statuses");
    } else {
        set_status_from_trailers(stream, status);
    }
}

void grpc_client_response_on_reset(struct grpc_client_stream *stream, uint32_t code) {
    struct error err;
    bool refused = code == NGHTTP2_REFUSED_STREAM; /* RFC 9113, 8.7: safe to retry */
    stream->call.not_processed = refused && stream->state < GRPC_CLIENT_STATUS_SET;
    /* It has the reason, and holds for all calls. */
    if (refused && stream->session->goaway_error.status != ST_OK) {
        grpc_client_stream_set_status(stream, -1, &stream->session->goaway_error);
        return;
    }
    error_set(&err, ST_REFUSED, "the server %s: %s",
              refused ? "did not begin the call" : "reset the call", nghttp2_http2_strerror(code));
    grpc_client_stream_set_status(stream, grpc_code_from_reset(code), &err);
}

/* ---- head and trailers ----------------------------------------------------------------------- */

void grpc_client_response_add_field(struct grpc_client_stream *stream, struct str name,
                                    struct str value) {
    struct grpc_fields *fields = stream->head_received ? &stream->trailers : &stream->head;
    if (name.len > 0 && name.ptr[0] == ':') { /* nghttp2 allows only :status */
        int status = 0;
        for (size_t i = 0; i < value.len && i < 3; i++) {
            status = 10 * status + (value.ptr[i] - '0');
        }
        stream->call.http_status = status;
        return;
    }
    stream->head_too_large =
        !grpc_fields_add(stream->call.arena, fields, name, value) || stream->head_too_large;
}

/* Checks for a response that is not gRPC, or cannot be decoded. */
static void check_head(struct grpc_client_stream *stream) {
    struct grpc_fields *head = &stream->head;
    struct error err;
    size_t n_codings, n_statuses;
    struct str type = grpc_fields_find(head->items, head->n, "content-type", NULL);
    struct str coding = grpc_fields_find(head->items, head->n, "grpc-encoding", &n_codings);
    grpc_fields_find(head->items, head->n, "grpc-status", &n_statuses);
    if (n_statuses > 0) {
        return; /* a gRPC status decides, whatever else the response is */
    }
    if (stream->call.http_status != 200) {
        error_set(&err, ST_REFUSED, "the server answered HTTP %d without a gRPC status",
                  stream->call.http_status);
        grpc_client_stream_set_status(stream, grpc_code_from_http(stream->call.http_status), &err);
    } else if (!grpc_content_type_ok(type)) {
        error_set(&err, ST_BAD_ANSWER,
                  "the answer is not gRPC: its content type is \"%.*s\", expected application/grpc",
                  STR_ARG(type));
        grpc_client_stream_set_status(stream, -1, &err);
    } else if (n_codings > 0 && !grpc_coding_parse(coding, &stream->in.coding)) {
        error_set(&err, ST_BAD_ANSWER,
                  "the answer's grpc-encoding is \"%.*s\", accepted are identity, deflate and gzip",
                  STR_ARG(coding));
        grpc_client_stream_set_status(stream, -1, &err);
    }
}

/* Returns: whether all fields could be decoded. */
static bool decode_fields(struct grpc_client_stream *stream, struct grpc_fields *fields) {
    struct error err;
    if (stream->head_too_large) {
        error_set(&err, ST_HEADER_TOO_LARGE,
                  "the answer's metadata is over the limit of %llu bytes, or of %d fields",
                  (unsigned long long)stream->core->limits.max_header_size, (int)GRPC_MAX_FIELDS);
        grpc_client_stream_set_status(stream, -1, &err);
    } else if (grpc_fields_decode(stream->call.arena, fields, &err) != ST_OK) {
        set_protocol_error(stream, err.text);
    }
    return stream->state == GRPC_CLIENT_OPEN;
}

void grpc_client_response_finish_head(struct grpc_client_stream *stream, bool last) {
    if (stream->state != GRPC_CLIENT_OPEN) {
        return;
    }
    if (stream->head_received) {
        (void)decode_fields(stream, &stream->trailers);
        return;
    }
    if (stream->call.http_status / 100 == 1) { /* RFC 9110, 15.2: the final response follows */
        stream->head.n = 0;
        return;
    }
    stream->head_received = true;
    if (decode_fields(stream, &stream->head)) {
        check_head(stream);
    }
    if (last) { /* gRPC over HTTP2, "Trailers-Only" */
        stream->trailers = stream->head;
    } else if (stream->state == GRPC_CLIENT_OPEN) {
        stream->call.fields = stream->head.items;
        stream->call.n_fields = stream->head.n;
        grpc_client_stream_emit(stream, GRPC_CLIENT_HEAD);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Maps an error of the receiver and ends the call with it. */
static void set_message_error(struct grpc_client_stream *stream, struct error *err) {
    const struct grpc_client_limits *limits = &stream->core->limits;
    if (err->status == ST_BODY_TOO_LARGE) {
        error_set(err, ST_BODY_TOO_LARGE, "the answer has a message of more than %llu bytes (%s)",
                  (unsigned long long)limits->max_message_bytes, limits->setting);
    } else if (err->status != ST_NO_MEMORY && err->status != ST_OVERLOADED) {
        error_prefix(err, "the server's message");
        err->status = ST_BAD_ANSWER;
    }
    grpc_client_stream_set_status(stream, -1, err);
}

static enum status resume_pending(struct grpc_client_stream *stream, struct error *err) {
    size_t n_used;
    enum status st = grpc_receiver_resume(&stream->in, UINT64_MAX, &n_used, err);
    consume_window(stream, n_used);
    return st;
}

/* Everything was received and nothing is buffered. */
static bool is_at_end(const struct grpc_client_stream *stream) {
    return stream->remote_ended && stream->in.state < GRPC_RECEIVED &&
           !stream->in.pending_input.data;
}

/* Delivers the messages that the caller requested; sets the status after the last one. */
static void grpc_client_response_deliver(struct grpc_client_stream *stream) {
    struct error err;
    if (stream->delivering || stream->state != GRPC_CLIENT_OPEN) {
        return; /* an outer frame continues; or the call has its status */
    }
    stream->delivering = true;
    enum status st = resume_pending(stream, &err);
    while (st == ST_OK && stream->in.state == GRPC_RECEIVED && stream->in.n_reads_wanted > 0) {
        stream->call.message = grpc_receiver_take(&stream->in);
        grpc_client_stream_emit(stream, GRPC_CLIENT_MESSAGE);
        stream->call.message = NULL;
        st = resume_pending(stream, &err);
    }
    if (st != ST_OK) {
        set_message_error(stream, &err);
    } else if (is_at_end(stream)) {
        set_status_at_end(stream);
    }
    stream->delivering = false;
}

void grpc_client_response_add_data(struct grpc_client_stream *stream, struct str data) {
    struct grpc_receiver *in = &stream->in;
    struct error err;
    enum status st = ST_OK;
    if (stream->state == GRPC_CLIENT_OPEN && !stream->head_received) {
        set_protocol_error(stream, "the server sent a message before its head");
    }
    while (st == ST_OK && data.len > 0 && grpc_receiver_may_add(in)) {
        size_t before = data.len;
        st = grpc_receiver_add(in, &data, &err);
        consume_window(stream, before - data.len);
        if (st == ST_OK && in->state == GRPC_RECEIVED) {
            grpc_client_response_deliver(stream);
        }
    }
    if (in->state == GRPC_RECEIVING_STOPPED) {
        consume_window(stream, data.len);
    } else if (st == ST_OK && data.len > 0 && !stream->streams) {
        set_protocol_error(stream, "the server sent several messages, expected one");
        consume_window(stream, data.len);
    } else if (st == ST_OK && data.len > 0) {
        st = grpc_receiver_buffer_copy(in, data, &err);
    }
    if (st != ST_OK) {
        set_message_error(stream, &err);
    }
}

void grpc_client_response_on_end_stream(struct grpc_client_stream *stream) {
    stream->remote_ended = true;
    grpc_client_response_deliver(stream);
}

enum { OWN_FIELDS = 9 };

static struct grpc_client_stream *stream_of_call(const struct grpc_client_call *call) {
    return (struct grpc_client_stream *)(uintptr_t)call;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_add(struct grpc_client_list *list, struct grpc_client_stream *stream) {
    stream->list = list;
    TAILQ_INSERT_TAIL(list, stream, link);
}

static void list_remove(struct grpc_client_stream *stream) {
    TAILQ_REMOVE(stream->list, stream, link);
    stream->list = NULL;
}

/* ---- states ---------------------------------------------------------------------------------- */

#define TO(state) STATE_SET(GRPC_CLIENT_##state)

static void set_state(struct grpc_client_stream *stream, enum grpc_client_state state) {
    static const uint32_t NEXT[] = {
        [GRPC_CLIENT_WAITING] = TO(OPEN) | TO(STATUS_SET),
        [GRPC_CLIENT_OPEN] = TO(STATUS_SET),
        [GRPC_CLIENT_STATUS_SET] = TO(NOTIFIED),
        [GRPC_CLIENT_NOTIFIED] = 0,
    };
    assert(transition_is_legal(NEXT, stream->state, state));
    stream->state = (uint8_t)state;
}

static void schedule_sweep(struct grpc_client_stream *stream) {
    struct grpc_client_core *core = stream->core;
    if (!stream->in_sweep_list) {
        stream->in_sweep_list = true;
        stream->ended_next = NULL;
        *(core->ended ? &core->last_ended->ended_next : &core->ended) = stream;
        core->last_ended = stream;
    }
    core->schedule_deferred(core);
}

static void grpc_client_stream_emit(struct grpc_client_stream *stream,
                                    enum grpc_client_event event) {
    bool inner = stream->in_callback;
    stream->in_callback = true;
    stream->on_event(&stream->call, event);
    stream->in_callback = inner;
}

/* ---- starting -------------------------------------------------------------------------------- */

static enum status set_fields(struct grpc_client_stream *stream,
                              const struct grpc_client_call_options *options, struct error *err) {
    if (options->n_fields > GRPC_CLIENT_MAX_FIELDS) {
        return error_set(err, ST_BAD_FIELD, "expected at most %d fields of metadata, got %zu",
                         (int)GRPC_CLIENT_MAX_FIELDS, options->n_fields);
    }
    for (size_t i = 0; i < options->n_fields; i++) {
        const struct grpc_field *field = &options->fields[i];
        grpc_fields_add_encoded(stream->call.arena, &stream->set, GRPC_CLIENT_MAX_FIELDS,
                                field->name, field->value);
        if (stream->set.n != i + 1) {
            return error_no_memory(err, "a call");
        }
        const struct grpc_field *set = &stream->set.items[i];
        if (field->name.len == 0 || field->name.ptr[0] == ':' ||
            !nghttp2_check_header_name((const uint8_t *)set->name.ptr, set->name.len) ||
            !nghttp2_check_header_value((const uint8_t *)set->value.ptr, set->value.len)) {
            return error_set(err, ST_BAD_FIELD,
                             "metadata \"%.*s\": expected a lower-case name and a printable value "
                             "(bytes under a name in -bin)",
                             STR_ARG(field->name));
        }
    }
    return ST_OK;
}

static enum status stream_init(struct grpc_client_stream *stream,
                               const struct grpc_client_call_options *options, struct error *err) {
    struct grpc_client_core *core = stream->core;
    stream->call.user = options->user;
    stream->call.code = -1;
    stream->on_event = options->on_event;
    stream->streams = options->streams;
    stream->wait_for_ready = options->wait_for_ready;
    stream->in = (struct grpc_receiver){.receiver_options = &core->receiver_options,
                                        .align_at = options->align_at,
                                        .n_reads_wanted = options->streams ? 0 : 1};
    stream->path = arena_dup(stream->call.arena, options->path);
    if (!stream->path.ptr) {
        return error_no_memory(err, "a call");
    }
    enum status st = set_fields(stream, options, err);
    if (st == ST_OK && options->timeout_ns > 0) {
        uint64_t now_ns = grpc_client_core_now(core);
        stream->deadline_ns = clock_after_ns(now_ns, options->timeout_ns);
        st = timer_heap_set(&core->deadlines, &stream->deadline, stream->deadline_ns)
                 ? ST_OK
                 : error_no_memory(err, "a call");
    }
    return st;
}

enum status grpc_client_stream_new(struct grpc_client_core *core,
                                   const struct grpc_client_call_options *options,
                                   struct grpc_client_stream **out, struct error *err) {
    struct arena *arena = arena_new(core->arenas, 0);
    struct grpc_client_stream *stream = arena ? arena_calloc(arena, 1, sizeof(*stream)) : NULL;
    if (!stream) {
        arena_free(arena);
        return error_no_memory(err, "a call");
    }
    stream->core = core;
    stream->call.arena = arena;
    enum status st = stream_init(stream, options, err);
    if (st != ST_OK) {
        arena_free(arena); /* the stream lives in it; it has no deadline yet */
        return st;
    }
    list_add(&core->waiting, stream);
    core->n_alive++;
    core->schedule_deferred(core);
    *out = stream;
    return ST_OK;
}

/* ---- the request ----------------------------------------------------------------------------- */

/* nghttp2 requests the size of the next frame; its send_data callback collects the bytes. */
static ssize_t on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct grpc_client_stream *stream = source->ptr;
    (void)h2, (void)id, (void)buf, (void)user;
    size_t n = grpc_send_queue_reserve(&stream->out, length);
    stream->end_stream_sent = n == stream->out.n_bytes && stream->half_closed;
    if (n == 0 && !stream->end_stream_sent) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY | (stream->end_stream_sent ? NGHTTP2_DATA_FLAG_EOF : 0);
    return (ssize_t)n;
}

/* gRPC over HTTP2, "Requests". `timeout` is the buffer for grpc-timeout. Returns: number of
 * fields. */
static size_t make_head(const struct grpc_client_stream *stream, char timeout[GRPC_TIMEOUT_BYTES],
                        nghttp2_nv nv[OWN_FIELDS + GRPC_CLIENT_MAX_FIELDS]) {
    const struct grpc_client_core *core = stream->core;
    uint64_t now_ns = grpc_client_core_now(core);
    size_t n = 0;
    nv[n++] = grpc_nv(STR(":method"), STR("POST"), GRPC_NV_NO_COPY);
    nv[n++] = grpc_nv(STR(":scheme"), core->is_tls ? STR("https") : STR("http"), GRPC_NV_NO_COPY);
    nv[n++] = grpc_nv(STR(":path"), stream->path, GRPC_NV_NO_COPY);
    nv[n++] = grpc_nv(STR(":authority"), core->authority, GRPC_NV_NO_COPY);
    nv[n++] = grpc_nv(STR("te"), STR("trailers"), GRPC_NV_NO_COPY);
    if (stream->deadline_ns > 0) {
        uint64_t left_ns = stream->deadline_ns > now_ns ? stream->deadline_ns - now_ns : 1;
        struct str text = str_make(timeout, grpc_timeout_print(left_ns, timeout));
        /* It differs with each call: indexed, it would push the other fields out of the table. */
        nv[n++] = grpc_nv(STR("grpc-timeout"), text,
                          (unsigned)GRPC_NV_NO_COPY_NAME | (unsigned)NGHTTP2_NV_FLAG_NO_INDEX);
    }
    nv[n++] = grpc_nv(STR("content-type"), STR("application/grpc"), GRPC_NV_NO_COPY);
    nv[n++] = grpc_nv(STR("grpc-accept-encoding"), STR("identity,deflate,gzip"), GRPC_NV_NO_COPY);
    if (grpc_fields_find(stream->set.items, stream->set.n, "user-agent", NULL).len == 0) {
        nv[n++] = grpc_nv(STR("user-agent"), STR("grpc-c-sluice/" SLUICE_VERSION), GRPC_NV_NO_COPY);
    }
    for (size_t i = 0; i < stream->set.n; i++) {
        nv[n++] = grpc_nv(stream->set.items[i].name, stream->set.items[i].value, GRPC_NV_NO_COPY);
    }
    return n;
}

bool grpc_client_stream_start(struct grpc_client_stream *stream,
                              struct grpc_client_session *session) {
    nghttp2_nv nv[OWN_FIELDS + GRPC_CLIENT_MAX_FIELDS];
    char timeout[GRPC_TIMEOUT_BYTES];
    struct error err;
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = on_read};
    size_t n = make_head(stream, timeout, nv);
    int32_t id = nghttp2_submit_request(session->h2, NULL, nv, n, &provider, stream);
    if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE) { /* RFC 9113, 5.1.1: stream ids are exhausted */
        grpc_client_session_send_goaway(session);
        return false;
    }
    if (id < 0) {
        error_no_memory(&err, "a call");
        grpc_client_stream_set_status(stream, -1, &err);
        return true;
    }
    list_remove(stream);
    list_add(&session->streams, stream);
    stream->session = session;
    stream->id = id;
    session->n_open++;
    set_state(stream, GRPC_CLIENT_OPEN);
    grpc_client_session_schedule_write(session);
    return true;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void drop_queue(struct grpc_client_stream *stream) {
    struct grpc_write_batch none = {0};
    grpc_send_queue_clear(&stream->out, stream->session ? &stream->session->write_batch : &none);
}

/* Stops the server's processing. */
static void reset_stream(struct grpc_client_stream *stream) {
    if (!stream->closed && !(stream->remote_ended && stream->end_stream_sent)) {
        nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_CANCEL);
        grpc_client_session_schedule_write(stream->session);
    }
}

void grpc_client_stream_set_status(struct grpc_client_stream *stream, int code,
                                   const struct error *err) {
    bool waited = stream->state == GRPC_CLIENT_WAITING;
    if (stream->state >= GRPC_CLIENT_STATUS_SET) {
        return;
    }
    set_state(stream, GRPC_CLIENT_STATUS_SET);
    stream->call.error = *err;
    stream->call.code = code;
    stream->call.trailers = stream->trailers.items;
    stream->call.n_trailers = stream->trailers.n;
    timer_heap_remove(&stream->core->deadlines, &stream->deadline);
    consume_window(stream, grpc_receiver_stop(&stream->in)); /* no more messages are wanted */
    if (waited) {
        list_remove(stream);
        stream->call.not_processed = stream->closed = true;
    } else {
        reset_stream(stream);
    }
    if (stream->out.n_reserved == 0) { /* else nghttp2 collects the reserved bytes first */
        drop_queue(stream);
    }
    schedule_sweep(stream);
}

void grpc_client_stream_closed(struct grpc_client_stream *stream) {
    struct grpc_client_session *session = stream->session;
    assert(!stream->closed);
    stream->closed = true;
    session->n_open--;
    nghttp2_session_set_stream_user_data(session->h2, stream->id, NULL);
    if (session->head_stream == stream) {
        session->head_stream = NULL;
    }
    drop_queue(stream);
    list_remove(stream);
    stream->session = NULL;
    schedule_sweep(stream);
    stream->core->schedule_deferred(stream->core); /* capacity for another call */
}

void grpc_client_stream_sweep(struct grpc_client_stream *stream) {
    if (stream->state == GRPC_CLIENT_STATUS_SET) {
        set_state(stream, GRPC_CLIENT_NOTIFIED);
        grpc_client_stream_emit(stream, GRPC_CLIENT_END);
    }
    if (stream->state == GRPC_CLIENT_NOTIFIED && stream->closed && stream->out.n_in_write == 0 &&
        !stream->in_sweep_list) {
        stream->core->n_alive--;
        arena_free(stream->call.arena); /* the stream lives in it */
    }
}

bool grpc_client_stream_give_bytes_back(struct grpc_client_stream *stream) {
    assert(stream->state >= GRPC_CLIENT_STATUS_SET);
    return grpc_send_queue_keep_reserved_copy(&stream->out);
}

/* ---- functions of call.h -------------------------------------------------------------- */

/* Makes nghttp2 read data again. */
static void resume_data(struct grpc_client_stream *stream) {
    if (stream->deferred && !stream->closed) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->session->h2, stream->id);
        grpc_client_session_schedule_write(stream->session);
    }
}

void grpc_client_send(struct grpc_client_call *call, const struct piece *pieces, size_t n_pieces,
                      void (*release)(void *user), void *user) {
    struct grpc_client_stream *stream = stream_of_call(call);
    /* A unary call's one message lives in the call's arena; a streaming call may send any
     * number. */
    struct grpc_send_queue_options options = {.arena = stream->streams ? NULL : call->arena};
    struct error err;
    bool wanted = stream->state < GRPC_CLIENT_STATUS_SET && !stream->remote_ended;
    assert(!stream->half_closed);
    stream->half_closed = !stream->streams;
    if (wanted && grpc_send_queue_push(&stream->out, &options, pieces, n_pieces, release, user)) {
        resume_data(stream);
        return;
    }
    if (release) {
        release(user);
    }
    if (wanted) { /* do not continue without a message */
        error_set(&err, ST_NO_MEMORY, "a message could not be sent: no memory, or over 4 GiB");
        grpc_client_stream_set_status(stream, -1, &err);
    }
}

void grpc_client_half_close(struct grpc_client_call *call) {
    struct grpc_client_stream *stream = stream_of_call(call);
    if (!stream->half_closed) {
        stream->half_closed = true;
        resume_data(stream);
    }
}

void grpc_client_read(struct grpc_client_call *call) {
    struct grpc_client_stream *stream = stream_of_call(call);
    assert(stream->streams);
    if (stream->in.state != GRPC_RECEIVING_STOPPED) {
        stream->in.n_reads_wanted++;
        grpc_client_response_deliver(stream);
    }
}

void grpc_client_cancel(struct grpc_client_call *call) {
    struct error err;
    error_set(&err, ST_CANCELLED, "the call was cancelled");
    grpc_client_stream_set_status(stream_of_call(call), -1, &err);
}

size_t grpc_client_queued_bytes(const struct grpc_client_call *call) {
    return stream_of_call(call)->out.n_bytes;
}

struct str grpc_client_find(const struct grpc_field *fields, size_t n_fields, const char *name,
                            size_t *n) {
    return grpc_fields_find(fields, n_fields, name, n);
}

void grpc_client_stream_on_message_sent(struct grpc_send_queue *queue) {
    struct grpc_client_stream *stream = CONTAINER_OF(queue, struct grpc_client_stream, out);
    if (queue->n_in_write > 0) {
        return;
    }
    if (stream->state == GRPC_CLIENT_NOTIFIED && stream->closed) {
        schedule_sweep(stream);
    } else if (!queue->first && stream->streams && stream->state == GRPC_CLIENT_OPEN &&
               !stream->half_closed && !stream->remote_ended) {
        grpc_client_stream_emit(stream, GRPC_CLIENT_WRITABLE);
    }
}
