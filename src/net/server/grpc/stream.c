/* A call: its head, the response's head and trailers, and its end, by the method, the client or a
 * timeout, whichever is first. It is freed when method, nghttp2 and socket are done with it. A
 * plain HTTP request gets an HTTP response here. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "core/base/transition.h"
#include "core/event/clock.h"
#include "net/server/grpc/session.h"
#include "net/transport/grpc/fields.h"

enum {
    FIELD_BYTES = 32, /* RFC 9113, 10.5.1, and about what an item of a list takes */
    OWN_FIELDS = 6,
    LAST_STATUS = 16,
};

/* ---- in -------------------------------------------------------------------------------------- */

/* Counts bytes of the head that are kept as long as the stream. Returns: false when the budget is
 * used up. */
static bool reserve_head(struct grpc_stream *stream, struct str name, struct str value) {
    size_t n_bytes = name.len + value.len + FIELD_BYTES;
    if (str_ends_with(name, STR("-bin"))) {
        n_bytes += value.len; /* decoded */
    }
    stream->n_head_bytes += n_bytes;
    size_t have = GRPC_FREE_METADATA_BYTES + stream->n_head_reserved;
    if (stream->n_head_bytes <= have) {
        return true;
    }
    size_t missing = stream->n_head_bytes - have;
    if (!net_budget_reserve(stream->core->options->budget, NET_BODY_GRPC, missing)) {
        stream->head_over_budget = true;
        return false;
    }
    stream->n_head_reserved += missing;
    return true;
}

/* Returns: where a pseudo-header field is stored, NULL when it is not. */
static struct str *pseudo_field(struct grpc_stream *stream, struct str name) {
    if (str_is(name, ":path")) {
        return &stream->path;
    }
    if (str_is(name, ":method")) {
        return &stream->http_method;
    }
    return str_is(name, ":authority") ? &stream->call.authority : NULL;
}

/* Returns: whether a field is stored: it is read below, by a method, or its error is reported. */
static bool keeps_field(const struct grpc_stream *stream, struct str name, struct str value) {
    const struct grpc_server_options *options = stream->core->options;
    return !options->keeps_field || stream->session->http_requests ||
           str_is(name, "content-type") || str_is(name, "grpc-encoding") ||
           str_is(name, "grpc-accept-encoding") || str_is(name, "grpc-timeout") ||
           options->keeps_field(name, options->keeps_context) || !grpc_field_is_valid(name, value);
}

void grpc_head_add(struct grpc_stream *stream, struct str name, struct str value) {
    struct arena *arena = stream->call.arena;
    bool pseudo = name.len > 0 && name.ptr[0] == ':', stored = true;
    struct str *where = pseudo ? pseudo_field(stream, name) : NULL;
    if (pseudo ? !where : !keeps_field(stream, name, value)) {
        stream->n_unused_fields += !pseudo;
    } else if (!reserve_head(stream, name, value)) {
        return;
    } else if (where) {
        *where = arena_dup(arena, value);
        stored = where->ptr != NULL;
    } else {
        stored = grpc_fields_add(arena, &stream->head, name, value);
    }
    stored = stored && stream->head.n + stream->n_unused_fields <= GRPC_MAX_FIELDS;
    stream->head_too_large = stream->head_too_large || !stored;
}

static bool has_grpc_content_type(const struct grpc_stream *stream) {
    return grpc_content_type_ok(grpc_find_field(&stream->call, "content-type", NULL));
}

/* gRPC over HTTP2, "Requests": a request that is not gRPC gets an HTTP error. */
static enum status check_http(const struct grpc_stream *stream, struct error *err) {
    if (!str_is(stream->http_method, "POST")) {
        return error_set(err, ST_METHOD_NOT_ALLOWED,
                         "this port speaks gRPC: expected POST, got %.*s. HTTP has a port of its "
                         "own (--http)",
                         STR_ARG(stream->http_method));
    }
    if (!has_grpc_content_type(stream)) {
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "this port speaks gRPC: expected the content type application/grpc. HTTP "
                         "has a port of its own (--http)");
    }
    return ST_OK;
}

static enum status read_codings(struct grpc_stream *stream, struct error *err) {
    size_t n;
    struct str name = grpc_find_field(&stream->call, "grpc-encoding", &n);
    if (n > 0 && !grpc_coding_parse(name, &stream->in.coding)) {
        grpc_set_field(&stream->call, STR("grpc-accept-encoding"), STR("identity,deflate,gzip"));
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "expected grpc-encoding identity, gzip or deflate, got \"%.*s\"",
                         STR_ARG(name));
    }
    if (stream->core->options->limits.compression_level > 0) {
        stream->answer_coding =
            grpc_coding_choose(grpc_find_field(&stream->call, "grpc-accept-encoding", NULL));
    }
    return ST_OK;
}

static enum status read_timeout(struct grpc_stream *stream, struct error *err) {
    size_t n;
    uint64_t ns;
    struct str text = grpc_find_field(&stream->call, "grpc-timeout", &n);
    if (n == 0) {
        return ST_OK;
    }
    if (!grpc_timeout_parse(text, &ns)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected up to 8 digits and one of H, M, S, m, u, n for grpc-timeout, "
                         "got \"%.*s\"",
                         STR_ARG(text));
    }
    uint64_t now_ns = grpc_core_now(stream->core);
    stream->call.deadline_ns = clock_after_ns(now_ns, ns);
    return ST_OK;
}

/* Returns: an error when there was no memory for the open call. A method that counts what its calls
 * take has its own answer to that. */
static enum status check_open_call_memory(const struct grpc_stream *stream, struct error *err) {
    const struct net_budget *budget = stream->core->options->budget;
    if (stream->memory == MEMORY_OPEN_CALL_GRANTED) {
        return ST_OK;
    }
    const struct grpc_method *method = grpc_core_find_method(stream->core, stream->path);
    if (method && method->counts_memory) {
        return ST_OK;
    }
    if (stream->memory == MEMORY_OPEN_CALLS_FULL) {
        metric_add(METRIC_DROPPED_MEMORY, 1);
        return error_set(err, ST_OVERLOADED,
                         "no memory for another open call of the connection: open calls may take "
                         "a quarter of the %llu bytes of --client-memory, and those of a "
                         "connection a quarter of what the others leave of it",
                         (unsigned long long)budget->memory);
    }
    net_budget_error(budget, err);
    return error_prefix(err, "no memory for another open call of the connection");
}

/* Returns: why a head of any request is refused. */
static enum status check_head_limits(const struct grpc_stream *stream, struct error *err) {
    if (check_open_call_memory(stream, err) != ST_OK) {
        return err->status;
    }
    if (stream->head_over_budget) {
        net_budget_error(stream->core->options->budget, err);
        return error_prefix(err, "no memory for the metadata of calls");
    }
    if (stream->head_too_large) {
        return error_set(err, ST_HEADER_TOO_LARGE,
                         "expected metadata of at most %zu bytes (--max-header-size) and %d fields",
                         stream->core->options->limits.net.max_header_size, (int)GRPC_MAX_FIELDS);
    }
    return ST_OK;
}

/* Parses the head. Returns: ST_OK, or what is wrong; sets is_plain when the request is not gRPC. */
static enum status grpc_head_check(struct grpc_stream *stream, struct error *err) {
    struct grpc_call *call = &stream->call;
    enum status st = check_head_limits(stream, err);
    if (st != ST_OK) {
        return st;
    }
    st = check_http(stream, err);
    if (st != ST_OK) {
        stream->is_plain = true;
        return st;
    }
    call->method = grpc_core_find_method(stream->core, stream->path);
    if (!call->method) {
        return error_set(err, ST_UNSUPPORTED, "there is no method %.*s here",
                         STR_ARG(stream->path));
    }
    st = read_codings(stream, err);
    if (st == ST_OK) {
        st = read_timeout(stream, err);
    }
    return st == ST_OK ? grpc_fields_decode(call->arena, &stream->head, err) : st;
}

/* ---- out ------------------------------------------------------------------------------------- */

struct head {
    size_t n;
    nghttp2_nv nv[OWN_FIELDS + 2 * GRPC_MAX_SET_FIELDS];
};

static_assert(OWN_FIELDS >= 5, ":status, content-type, grpc-encoding, grpc-status, grpc-message");

static void head_add(struct head *head, struct str name, struct str value, unsigned flags) {
    head->nv[head->n++] = grpc_nv(name, value, flags);
}

static void add_fields(struct head *head, const struct grpc_fields *fields) {
    for (size_t i = 0; i < fields->n; i++) {
        head_add(head, fields->items[i].name, fields->items[i].value, GRPC_NV_COPY);
    }
}

static void add_status(struct grpc_stream *stream, struct head *head) {
    static const char *const codes[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
    int code = stream->status >= 0 && stream->status <= LAST_STATUS ? stream->status : 2;
    head_add(head, STR("grpc-status"), str_of(codes[code]), GRPC_NV_NO_COPY);
    if (stream->message.len > 0) {
        struct buf text;
        buf_init(&text, stream->call.arena, stream->message.len);
        grpc_status_message_print(&text, stream->message);
        if (!text.failed) {
            head_add(head, STR("grpc-message"), buf_str(&text), GRPC_NV_NO_COPY_NAME);
        }
    }
    add_fields(head, &stream->trailers);
}

void grpc_head_submit(struct grpc_stream *stream, bool trailers_only) {
    struct head head;
    head.n = 0;
    head_add(&head, STR(":status"), STR("200"), GRPC_NV_NO_COPY);
    head_add(&head, STR("content-type"), STR("application/grpc"), GRPC_NV_NO_COPY);
    if (trailers_only) {
        add_status(stream, &head);
    } else if (stream->answer_coding != HTTP_IDENTITY) {
        head_add(&head, STR("grpc-encoding"), str_of(grpc_coding_name(stream->answer_coding)),
                 GRPC_NV_NO_COPY);
    }
    add_fields(&head, &stream->set);
    nghttp2_data_provider provider = grpc_send_provider(stream);
    int code = nghttp2_submit_response(stream->session->h2, stream->id, head.nv, head.n,
                                       trailers_only ? NULL : &provider);
    if (code != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror(code));
    }
    grpc_core_schedule_write(stream->core, stream->session);
}

int grpc_head_submit_trailers(struct grpc_stream *stream) {
    struct head head;
    head.n = 0;
    add_status(stream, &head);
    return nghttp2_submit_trailer(stream->session->h2, stream->id, head.nv, head.n);
}

void grpc_set_field(struct grpc_call *call, struct str name, struct str value) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    grpc_fields_add_encoded(call->arena, &stream->set, GRPC_MAX_SET_FIELDS, name, value);
}

void grpc_set_trailer(struct grpc_call *call, struct str name, struct str value) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    grpc_fields_add_encoded(call->arena, &stream->trailers, GRPC_MAX_SET_FIELDS, name, value);
}

struct str grpc_find_field(const struct grpc_call *call, const char *name, size_t *n) {
    return grpc_fields_find(call->fields, call->n_fields, name, n);
}

/* Stores the error; the response is sent when the request has ended. */
static void grpc_plain_refuse(struct grpc_stream *stream, const struct error *err) {
    const struct grpc_core *core = stream->core;
    if (core->on_refused) {
        core->on_refused(stream->session, err, false);
    }
    stream->status = status_http(err->status);
    stream->message = arena_printf(stream->call.arena, "%s\n", err->text);
    grpc_receive_discard(stream);
    grpc_stream_update_timer(stream);
}

static ssize_t on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct grpc_stream *stream = source->ptr;
    struct str *left = &stream->message;
    size_t n = left->len < length ? left->len : length;
    (void)h2, (void)id, (void)user;
    if (n > 0) {
        memcpy(buf, left->ptr, n);
        *left = str_make(left->ptr + n, left->len - n);
    }
    *flags = left->len == 0 ? NGHTTP2_DATA_FLAG_EOF : NGHTTP2_DATA_FLAG_NONE;
    return (ssize_t)n;
}

void grpc_plain_answer(struct grpc_stream *stream) {
    struct str status = arena_printf(stream->call.arena, "%d", stream->status);
    const nghttp2_nv nv[] = {
        grpc_nv(STR(":status"), status, GRPC_NV_NO_COPY_NAME),
        grpc_nv(STR("content-type"), STR("text/plain; charset=utf-8"), GRPC_NV_NO_COPY),
        grpc_nv(STR("allow"), STR("POST"), GRPC_NV_NO_COPY),
    };
    if (stream->closed || stream->response_state != GRPC_RESPONSE_NONE) {
        return;
    }
    size_t n = stream->status == status_http(ST_METHOD_NOT_ALLOWED) ? 3 : 2;
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = on_read};
    grpc_stream_set_response_state(stream, GRPC_RESPONSE_ENDING);
    if (!status.ptr ||
        nghttp2_submit_response(stream->session->h2, stream->id, nv, n, &provider) != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, "out of memory for an answer");
    }
    grpc_stream_update_timer(stream);
    grpc_core_schedule_write(stream->core, stream->session);
}

/* The only one is contained in net_protocol.conn_memory_bytes. */
static void count_stream(struct grpc_stream *stream) {
    const struct grpc_session *session = stream->session;
    size_t n_bytes = stream->core->options->limits.stream_bytes;
    if (session->n_alive > 1 && n_bytes > 0) {
        stream->memory = memory_open_call_add(session->account, &stream->overhead, n_bytes);
    }
}

struct grpc_stream *grpc_stream_new(struct grpc_session *session, int32_t id) {
    struct grpc_core *core = session->core;
    struct arena *arena =
        arena_new(worker_arenas(core->worker), (size_t)core->options->limits.net.request_memory);
    struct grpc_stream *stream = arena ? arena_calloc(arena, 1, sizeof(*stream)) : NULL;
    if (!stream) {
        arena_free(arena);
        return NULL;
    }
    arena_set_budget(arena, &core->options->budget->arena);
    stream->core = core;
    stream->session = session;
    stream->id = id;
    stream->call.arena = arena;
    stream->call.worker = core->worker;
    stream->call.account = session->account;
    stream->call.is_on_http_port = session->http_requests != NULL;
    stream->in.receiver_options = &core->receiver_options;
    TAILQ_INSERT_TAIL(&session->streams, stream, link);
    session->n_alive++;
    session->n_open++;
    ++*core->n_alive;
    count_stream(stream);
    return stream;
}

void grpc_stream_unlink(struct grpc_stream *stream) {
    struct grpc_session *session = stream->session;
    if (!session) {
        return;
    }
    if (session->drain_next == stream) {
        session->drain_next = TAILQ_NEXT(stream, link);
    }
    TAILQ_REMOVE(&session->streams, stream, link);
    session->n_alive--;
    stream->session = NULL;
}

bool grpc_stream_can_free(const struct grpc_stream *stream) {
    return stream->method_state != GRPC_METHOD_ACTIVE && stream->closed &&
           stream->out.n_in_write == 0;
}

void grpc_stream_schedule_sweep(struct grpc_stream *stream) {
    if (!stream->in_sweep_list) {
        stream->in_sweep_list = true;
        stream->ended_next = stream->core->ended;
        stream->core->ended = stream;
    }
    grpc_core_schedule_write(stream->core, stream->session);
}

void grpc_stream_free(struct grpc_stream *stream) {
    struct grpc_core *core = stream->core;
    assert(grpc_stream_can_free(stream) && !stream->in_sweep_list && !stream->out.first);
    grpc_stream_unlink(stream);
    if (stream->method_state == GRPC_METHOD_FINISHED) {
        grpc_stream_emit(stream, GRPC_END);
    }
    if (stream->counted) {
        atomic_fetch_sub_explicit(core->n_calls, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, -1);
    }
    --*core->n_alive;
    memory_overhead_release(&stream->overhead);
    if (stream->n_head_reserved > 0) {
        net_budget_release(core->options->budget, NET_BODY_GRPC, stream->n_head_reserved);
    }
    arena_free(stream->call.arena); /* the stream lives in it */
}

/* ---- states ---------------------------------------------------------------------------------- */

#define TO(state) STATE_SET(GRPC_RESPONSE_##state)

void grpc_stream_set_response_state(struct grpc_stream *stream,
                                    enum grpc_response_state response_state) {
    static const uint32_t NEXT[] = {
        [GRPC_RESPONSE_NONE] = TO(OPEN) | TO(ENDING),
        [GRPC_RESPONSE_OPEN] = TO(ENDING),
        [GRPC_RESPONSE_ENDING] = TO(SENT),
        [GRPC_RESPONSE_SENT] = 0,
    };
    assert(transition_is_legal(NEXT, stream->response_state, response_state));
    if (response_state == GRPC_RESPONSE_ENDING && stream->counted) {
        metric_add(METRIC_REQUESTS_TOTAL, 1);
    }
    stream->response_state = (uint8_t)response_state;
}

void grpc_stream_update_timer(struct grpc_stream *stream) {
    struct timer_list *timeouts = &stream->core->stream_timers;
    bool sends = stream->out.n_bytes > 0 || stream->response_state == GRPC_RESPONSE_ENDING;
    if (!stream->closed && sends && stream->timeout.armed &&
        stream->timeout.timer_class == GRPC_WAIT_WINDOW) {
        return; /* what is queued does not prolong it */
    }
    if (!sends) {
        stream->sent_since_ns = 0;
    }
    stream->behind_mark = 0;
    if (!stream->closed && (sends || grpc_receive_is_waiting(stream))) {
        timer_list_start(timeouts, &stream->timeout, sends ? GRPC_WAIT_WINDOW : GRPC_WAIT_MESSAGE,
                         grpc_core_now(stream->core));
    } else {
        timer_list_stop(timeouts, &stream->timeout);
    }
}

/* Progress restarts the write timeout, unless the client was too slow for as long as that. */
void grpc_stream_on_sent(struct grpc_stream *stream, size_t n_bytes) {
    const struct grpc_limits *limits = &stream->core->options->limits;
    uint64_t now_ns = grpc_core_now(stream->core);
    uint64_t elapsed_ns = now_ns - stream->sent_since_ns;
    stream->n_sent += n_bytes;
    if (stream->sent_since_ns == 0 || elapsed_ns >= limits->net.write_timeout_ns) {
        bool is_slow =
            stream->sent_since_ns > 0 &&
            !net_write_is_fast_enough(stream->n_sent, limits->net.min_write_rate, elapsed_ns);
        if (is_slow) {
            return;
        }
        stream->n_sent = 0;
        stream->sent_since_ns = now_ns;
    }
    timer_list_stop(&stream->core->stream_timers, &stream->timeout);
    grpc_stream_update_timer(stream);
}

void grpc_stream_emit(struct grpc_stream *stream, enum grpc_event event) {
    bool inner = stream->in_callback;
    stream->in_callback = true;
    stream->call.method->on_event(&stream->call, event);
    stream->in_callback = inner;
    if (!inner && stream->in.n_reads_wanted > 0 && stream->call.method->streams) {
        grpc_receive_deliver(stream); /* a read was requested within the callback */
    }
}

/* ---- starting -------------------------------------------------------------------------------- */

static enum status check_call(struct grpc_stream *stream, struct error *err) {
    const struct grpc_server_options *options = stream->core->options;
    enum status st = grpc_head_check(stream, err);
    if (st == ST_OK && stream->call.deadline_ns != 0 &&
        !timer_heap_set(&stream->core->deadlines, &stream->deadline, stream->call.deadline_ns)) {
        st = error_no_memory(err, "a deadline");
    }
    if (st == ST_OK && options->admit) {
        st = options->admit(&stream->call, options->admit_context, err);
    }
    return st;
}

static bool is_for_http(const struct grpc_stream *stream) {
    return stream->session->http_requests &&
           !(str_is(stream->http_method, "POST") && has_grpc_content_type(stream));
}

static void begin_exchange(struct grpc_stream *stream, bool is_whole) {
    const struct grpc_http_requests *requests = stream->session->http_requests;
    struct error err;
    bool refused = check_head_limits(stream, &err) != ST_OK;
    stream->is_exchange = true;
    stream->method_state = GRPC_METHOD_ACTIVE;
    stream->call.method = &requests->method;
    stream->call.context = requests->user;
    stream->in.arena = stream->call.arena;
    requests->on_head(stream, is_whole, refused ? &err : NULL);
    grpc_stream_update_timer(stream);
}

void grpc_stream_on_head(struct grpc_stream *stream, bool is_whole) {
    struct error err;
    stream->counted = true;
    atomic_fetch_add_explicit(stream->core->n_calls, 1, memory_order_relaxed);
    metric_add(METRIC_REQUESTS_IN_FLIGHT, 1);
    stream->begun_ns = grpc_core_now(stream->core);
    stream->call.fields = stream->head.items;
    stream->call.n_fields = stream->head.n;
    if (is_for_http(stream)) {
        begin_exchange(stream, is_whole);
        return;
    }
    if (check_call(stream, &err) != ST_OK) {
        if (stream->is_plain) {
            grpc_plain_refuse(stream, &err);
        } else {
            grpc_stream_cancel(stream, &err);
        }
        return;
    }
    stream->call.context = stream->call.method->context;
    stream->in.align_at = stream->call.method->align_at;
    if (stream->call.method->small) {
        stream->in.receiver_options = &stream->core->small_receiver_options;
    }
    if (stream->call.method->streams) {
        grpc_stream_start_method(stream);
    } else {
        stream->in.arena = stream->call.arena;
        stream->in.n_reads_wanted = 1; /* the method starts with its message */
    }
    grpc_stream_update_timer(stream);
}

void grpc_stream_start_method(struct grpc_stream *stream) {
    stream->method_state = GRPC_METHOD_ACTIVE;
    if (stream->call.method->counts_memory) {
        memory_overhead_release(&stream->overhead);
    }
    grpc_stream_emit(stream, GRPC_BEGIN);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* The status is known: sends it after the queued messages, or as the whole response. */
static void finish_response(struct grpc_stream *stream, const struct error *err) {
    bool whole = stream->response_state == GRPC_RESPONSE_NONE;
    if (err) {
        const char *text = err->text[0] ? err->text : status_text(err->status);
        metric_add_error(METRIC_GRPC, err->status);
        stream->status = status_grpc(err->status);
        stream->message = arena_dup(stream->call.arena, str_of(text));
    }
    grpc_stream_set_response_state(stream, GRPC_RESPONSE_ENDING);
    if (stream->closed) {
        return;
    }
    if (whole) {
        grpc_head_submit(stream, true);
    } else {
        grpc_send_status(stream);
    }
    if (stream->out.n_bytes == 0) {
        grpc_stream_update_timer(stream); /* else the timer started when the message was queued */
    }
    grpc_core_schedule_write(stream->core, stream->session);
}

void grpc_stream_reset(struct grpc_stream *stream, uint32_t code) {
    stream->reset_submitted = true;
    nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id, code);
    grpc_core_schedule_write(stream->core, stream->session);
}

/* RFC 9113, 8.1: after a complete response to an incomplete request, RST_STREAM with NO_ERROR stops
 * the client's sending. The rest of an exchange's body is dropped before that, within a bound and
 * for --body-timeout: some clients take the reset for a failure. */
void grpc_stream_on_early_answer(struct grpc_stream *stream) {
    struct grpc_core *core = stream->core;
    if (stream->is_exchange && stream->session->http_requests->skips(stream, 0)) {
        timer_list_start(&core->stream_timers, &stream->timeout, GRPC_WAIT_MESSAGE,
                         grpc_core_now(core));
    } else {
        grpc_stream_reset(stream, NGHTTP2_NO_ERROR);
    }
}

/* Marks the call as cancelled. Returns: false when it is already. */
static bool mark_cancelled(struct grpc_stream *stream, const struct error *err) {
    struct grpc_call *call = &stream->call;
    if (call->is_cancelled) {
        return false;
    }
    call->is_cancelled = true;
    call->cancel_error = *err;
    timer_heap_remove(&stream->core->deadlines, &stream->deadline);
    grpc_receive_discard(stream);
    return true;
}

static void notify_method(struct grpc_stream *stream) {
    if (stream->method_state == GRPC_METHOD_ACTIVE) {
        grpc_stream_emit(stream, GRPC_CANCELLED);
    }
}

void grpc_stream_cancel(struct grpc_stream *stream, const struct error *err) {
    const struct grpc_core *core = stream->core;
    if (!mark_cancelled(stream, err)) {
        return;
    }
    if (!stream->closed && stream->response_state < GRPC_RESPONSE_ENDING) {
        if (stream->method_state == GRPC_METHOD_NOT_STARTED && core->on_refused) {
            core->on_refused(stream->session, err, false);
        }
        /* Messages sent before an error are still useful; after the deadline they are not. */
        bool late = err->status == ST_DEADLINE_EXCEEDED;
        if (late && grpc_send_queue_is_mid_message(&stream->out)) {
            grpc_stream_reset(stream, NGHTTP2_CANCEL);
        } else {
            if (late) {
                grpc_send_clear(stream);
            }
            finish_response(stream, err);
        }
    }
    notify_method(stream);
}

/* The client does not take the response. */
static void abort_response(struct grpc_stream *stream, const struct error *err) {
    grpc_stream_reset(stream, NGHTTP2_CANCEL);
    if (mark_cancelled(stream, err)) {
        notify_method(stream);
    }
}

static bool is_behind(struct grpc_stream *stream) {
    const struct grpc_core *core = stream->core;
    return stream->session && core->is_behind &&
           core->is_behind(stream->session, &stream->behind_mark);
}

void grpc_stream_timed_out(struct grpc_stream *stream, enum grpc_wait wait) {
    struct grpc_core *core = stream->core;
    struct error err;
    bool is_late = wait != GRPC_WAIT_WINDOW;
    if (is_late && stream->is_plain) {
        grpc_plain_answer(stream); /* the error is known already */
        return;
    }
    if (is_late && is_behind(stream)) {
        timer_list_start(&core->stream_timers, &stream->timeout, GRPC_WAIT_BEHIND,
                         grpc_core_now(core));
        return;
    }
    if (is_late && stream->is_exchange) {
        grpc_exchange_timed_out(stream);
        return;
    }
    if (is_late) {
        error_set(&err, ST_REQUEST_TIMEOUT, "timed out waiting for the message (--body-timeout)");
        grpc_stream_cancel(stream, &err);
        return;
    }
    error_set(&err, ST_CANCELLED,
              "timed out sending the response (--write-timeout, --min-write-rate)");
    abort_response(stream, &err);
}

bool grpc_stream_end_if_stalled(struct grpc_stream *stream, uint64_t since_ns) {
    const struct list_timer *timeout = &stream->timeout; /* restarted by progress */
    struct error err;
    bool is_waiting = !stream->closed && !stream->reset_submitted && stream->out.n_bytes > 0 &&
                      timeout->armed && timeout->timer_class == GRPC_WAIT_WINDOW;
    if (!is_waiting ||
        timeout->due_ns > since_ns + stream->core->options->limits.net.write_timeout_ns) {
        return false;
    }
    error_set(&err, ST_CANCELLED,
              "the response was not read while other requests waited for memory (--client-memory)");
    timer_list_stop(&stream->core->stream_timers, &stream->timeout);
    abort_response(stream, &err);
    return true;
}

/* Not formatted each time: Envoy resets the stream of every pick. */
static const struct error DISCONNECTED = {.status = ST_CANCELLED,
                                          .text = "the client disconnected before the response"};

void grpc_stream_closed(struct grpc_stream *stream) {
    struct grpc_session *session = stream->session;
    stream->closed = true;
    session->n_open--;
    if (session->recent == stream) {
        session->recent = NULL; /* nghttp2 frees its streams by itself */
    }
    timer_heap_remove(&stream->core->deadlines, &stream->deadline);
    timer_list_stop(&stream->core->stream_timers, &stream->timeout);
    grpc_receive_discard(stream);
    grpc_send_clear(stream);
    if (stream->method_state == GRPC_METHOD_ACTIVE) {
        grpc_stream_cancel(stream, &DISCONNECTED);
    }
    grpc_stream_schedule_sweep(stream);
}

/* ---- functions of server.h ------------------------------------------------------------------- */

void grpc_finish(struct grpc_call *call, const struct error *err) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    assert(stream->method_state == GRPC_METHOD_ACTIVE);
    stream->method_state = GRPC_METHOD_FINISHED;
    timer_heap_remove(&stream->core->deadlines, &stream->deadline);
    grpc_receive_discard(stream);
    if (stream->response_state < GRPC_RESPONSE_ENDING && !call->is_cancelled) {
        finish_response(stream, err);
    }
    if (stream->closed) {
        grpc_stream_schedule_sweep(stream);
    }
}
