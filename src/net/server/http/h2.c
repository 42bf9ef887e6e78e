/* Exchanges over HTTP/2: the requests that are not gRPC of the connections that begin with HTTP/2's
 * preface. Each is a stream of the gRPC server's session, which has the windows, the timeouts, the
 * memory of open streams and the counters against abuse. */
#include <assert.h>
#include <string.h>

#include "codec/http1/head_check.h"
#include "core/base/num.h"
#include "core/base/transition.h"
#include "net/server/http/conn.h"

/* Changed only by set_state. */
enum h2_state {
    H2_BODY,      /* the body is being received */
    H2_WAIT,      /* the handler has the whole request */
    H2_STREAMING, /* the head of a streamed response was submitted */
    H2_REPLIED,   /* the response is complete, or none will follow */
};

struct h2_call {
    struct http_exchange exchange; /* the router's and the handler's view */
    struct grpc_stream *stream;
    struct http_server *server;
    struct grpc_message *body;
    struct arena *reply_arena; /* of a request that used up its own, or NULL */
    uint64_t n_skipped;        /* bytes of a body that is not wanted */
    uint8_t state;             /* enum h2_state */
    bool awaits_continue;      /* the client may not send the body: it got no 100 Continue */
};

#define TO(state) STATE_SET(H2_##state)

static void set_state(struct h2_call *call, enum h2_state state) {
    static const uint32_t NEXT[] = {
        [H2_BODY] = TO(WAIT) | TO(REPLIED),
        [H2_WAIT] = TO(STREAMING) | TO(REPLIED),
        [H2_STREAMING] = TO(REPLIED),
        [H2_REPLIED] = 0,
    };
    assert(transition_is_legal(NEXT, call->state, state));
    call->state = (uint8_t)state;
}

static struct h2_call *call_of(struct http_exchange *exchange) {
    return CONTAINER_OF(exchange, struct h2_call, exchange);
}

static struct h2_call *call_of_stream(const struct grpc_stream *stream) {
    return stream->call.user;
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* RFC 9113, 8.2.3: a client may divide Cookie. */
static bool add_cookie(struct arena *arena, struct str *cookies, struct str value) {
    struct str joined = value;
    if (cookies->ptr) {
        joined = arena_printf(arena, "%.*s; %.*s", STR_ARG(*cookies), STR_ARG(value));
    }
    *cookies = joined;
    return joined.ptr != NULL;
}

/* Makes the fields those of an HTTP/1.1 head: :authority replaces Host (RFC 9113, 8.3.1). */
static bool make_fields(struct h2_call *call, struct http_field *fields, size_t *n_fields) {
    struct arena *arena = call->exchange.arena;
    const struct grpc_call *from = &call->stream->call;
    struct str cookies = {NULL, 0};
    size_t n = 0;
    for (size_t i = 0; i < from->n_fields; i++) {
        struct str name = from->fields[i].name, value = str_trim(from->fields[i].value);
        if (str_is(name, "cookie")) {
            if (!add_cookie(arena, &cookies, value)) {
                return false;
            }
        } else if (!str_is(name, "host") || from->authority.len == 0) {
            fields[n++] = (struct http_field){name, value};
        }
    }
    if (from->authority.len > 0) {
        fields[n++] = (struct http_field){STR("host"), from->authority};
    }
    if (cookies.ptr) {
        fields[n++] = (struct http_field){STR("cookie"), cookies};
    }
    *n_fields = n;
    return true;
}

/* nghttp2 has refused what HTTP/2 does not have: Connection, Transfer-Encoding, names in upper
 * case. A body without a length is what a chunked one is in HTTP/1.1. */
static enum status read_head(struct h2_call *call, bool is_whole, struct error *err) {
    struct http_exchange *exchange = &call->exchange;
    struct http_head *head = &exchange->head;
    struct http_field *fields =
        arena_alloc(exchange->arena, (call->stream->call.n_fields + 2) * sizeof(*fields));
    struct str length;
    if (!fields || !make_fields(call, fields, &head->n_fields)) {
        return error_no_memory(err, "the header fields");
    }
    head->target = call->stream->path;
    head->fields = fields;
    enum status st = http1_head_check(head, STR("1.1"), err);
    head->chunked = !is_whole && http_head_find(head, STR("content-length"), &length) == 0;
    head->has_body = !is_whole && (head->chunked || head->content_length > 0);
    return st;
}

static const struct http_version HTTP2;

/* Returns: NULL when out of memory. */
static struct h2_call *call_new(struct http_server *server, struct grpc_stream *stream) {
    struct h2_call *call = arena_calloc(stream->call.arena, 1, sizeof(*call));
    if (call) {
        call->stream = stream;
        call->server = server;
        call->exchange = (struct http_exchange){
            .arena = stream->call.arena,
            .worker = stream->call.worker,
            .account = stream->call.account,
            .listener = stream->session->listener,
            .head.method = stream->http_method,
            .plan.max_bytes = server->net.limits.max_body_size,
            .body = STR(""),
            .suppress_body = str_is(stream->http_method, "HEAD"),
            .version = &HTTP2,
            .router = &server->router,
        };
        stream->call.user = call;
    }
    return call;
}

/* Prepares memory for the body, and sends 100 Continue to a client that waits for it. */
static void receive_body(struct h2_call *call) {
    struct http_exchange *exchange = &call->exchange;
    const struct http_head *head = &exchange->head;
    uint64_t length = head->content_length < UINT64_MAX ? head->content_length : UINT64_MAX - 1;
    struct body_plan plan = {
        .length = head->chunked ? UINT64_MAX : length,
        .max_bytes = exchange->plan.max_bytes,
        .setting = exchange->plan.setting ? exchange->plan.setting : "--max-body-size",
        .align_at = exchange->plan.align_at,
        .coding = exchange->plan.coding,
    };
    struct error err;
    if (grpc_exchange_receive(call->stream, &plan, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else if (call->awaits_continue) {
        call->awaits_continue = false;
        grpc_exchange_continue(call->stream);
    }
}

static void route(struct h2_call *call) {
    struct http_exchange *exchange = &call->exchange;
    const struct http_router *router = exchange->router;
    call->awaits_continue =
        exchange->head.has_body && exchange->head.expect == HTTP_EXPECT_CONTINUE;
    if (!exchange->head.has_body) {
        grpc_receive_discard(call->stream); /* an empty DATA may follow */
        set_state(call, H2_WAIT);
    }
    router->on_head(exchange, router->context);
    if (call->state == H2_BODY) {
        receive_body(call);
    } else if (call->state == H2_WAIT && exchange->handler && exchange->handler->on_body) {
        exchange->handler->on_body(exchange, router->context);
    }
}

static void on_head(struct grpc_stream *stream, bool is_whole, const struct error *refusal) {
    struct http_server *server = stream->session->http_requests->user;
    struct h2_call *call = call_new(server, stream);
    struct error err;
    if (!call) {
        grpc_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
        grpc_exchange_finish(stream);
    } else if (refusal) {
        http_reply_error(&call->exchange, refusal, NULL, 0);
    } else if (read_head(call, is_whole, &err) != ST_OK) {
        http_reply_error(&call->exchange, &err, NULL, 0);
    } else if (call->exchange.head.expect == HTTP_EXPECT_UNKNOWN) {
        error_set(&err, ST_EXPECTATION_FAILED, "expected Expect: 100-continue and no other");
        http_reply_error(&call->exchange, &err, NULL, 0);
    } else {
        route(call);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void on_body(struct h2_call *call, struct grpc_message *message) {
    struct http_exchange *exchange = &call->exchange;
    call->body = message;
    if (message->data.len > 0) {
        exchange->body = message->data;
    }
    set_state(call, H2_WAIT);
    exchange->handler->on_body(exchange, exchange->router->context);
}

static void on_rejected(struct grpc_stream *stream, const struct error *why) {
    http_reply_error(&call_of_stream(stream)->exchange, why, NULL, 0);
}

/* Up to --discard-size, so that a client that is busy sending reads the response: as over
 * HTTP/1.1. */
static bool skips(struct grpc_stream *stream, size_t n_bytes) {
    struct h2_call *call = call_of_stream(stream);
    if (!call || call->awaits_continue) {
        return false;
    }
    call->n_skipped += n_bytes;
    return call->n_skipped <= call->server->net.limits.discard_size;
}

/* ---- responses ------------------------------------------------------------------------------- */

enum { OWN_FIELDS = 5, STACK_FIELDS = 24 };

static nghttp2_nv response_field(const struct http_field *field) {
    return grpc_nv(field->name, field->value, GRPC_NV_COPY); /* which makes the name lower case */
}

/* Returns: the value of the first line of HTTP/1.1 fields, which is removed. */
static struct str cut_value(struct str *lines) {
    struct str line = str_cut(lines, '\n');
    (void)str_cut(&line, ':');
    struct str value = str_cut(&line, '\r');
    return str_trim(value);
}

/* Submits the head. `length`: of the body, UINT64_MAX: unknown. Returns: false when out of memory;
 * the stream is reset. */
static bool submit_head(struct h2_call *call, const struct http_reply *reply, uint64_t length,
                        bool has_body) {
    struct http_exchange *exchange = &call->exchange;
    size_t worker_index = grpc_core_worker_index(call->stream->core);
    struct str common = http_reply_common_fields(&call->server->net.workers[worker_index]);
    struct http_field cors[HTTP_CORS_FIELDS];
    nghttp2_nv stack[STACK_FIELDS], *nv = stack;
    char status[20], digits[20];
    size_t n = 0, most = OWN_FIELDS + reply->n_fields + HTTP_CORS_FIELDS;
    if (most > STACK_FIELDS) {
        nv = arena_alloc(exchange->arena, most * sizeof(*nv));
    }
    if (!nv) {
        grpc_stream_reset(call->stream, NGHTTP2_INTERNAL_ERROR);
        return false;
    }
    nv[n++] =
        grpc_nv(STR(":status"), str_make(status, num_print_u64(status, (uint64_t)reply->status)),
                GRPC_NV_NO_COPY_NAME);
    nv[n++] = grpc_nv(STR("server"), cut_value(&common), GRPC_NV_NO_COPY_NAME);
    nv[n++] = grpc_nv(STR("date"), cut_value(&common), GRPC_NV_NO_COPY_NAME);
    if (reply->content_type) {
        nv[n++] = grpc_nv(STR("content-type"), str_of(reply->content_type), GRPC_NV_NO_COPY_NAME);
    }
    if (length != UINT64_MAX) {
        nv[n++] = grpc_nv(STR("content-length"), str_make(digits, num_print_u64(digits, length)),
                          GRPC_NV_NO_COPY_NAME);
    }
    for (size_t i = 0; i < reply->n_fields; i++) {
        nv[n++] = response_field(&reply->fields[i]);
    }
    if (exchange->allow_origin.len > 0) {
        http_cors_fields(exchange->allow_origin, cors);
        for (size_t i = 0; i < HTTP_CORS_FIELDS; i++) {
            nv[n++] = response_field(&cors[i]);
        }
    }
    grpc_exchange_submit_head(call->stream, nv, n, has_body);
    return true;
}

static void release_pieces(void (*release)(void *user), void *user) {
    if (release) {
        release(user);
    }
}

static void reply(struct http_exchange *exchange, const struct http_reply *reply) {
    struct h2_call *call = call_of(exchange);
    struct grpc_stream *stream = call->stream;
    uint64_t length = 0;
    for (size_t i = 0; i < reply->n_pieces; i++) {
        length += reply->pieces[i].n_bytes;
    }
    bool has_body = length > 0 && !exchange->suppress_body;
    assert(call->state == H2_BODY || call->state == H2_WAIT);
    set_state(call, H2_REPLIED);
    if (grpc_exchange_is_open(stream) && submit_head(call, reply, length, has_body) && has_body) {
        struct arena *arena = call->reply_arena ? call->reply_arena : exchange->arena;
        grpc_exchange_send(stream, arena, reply->pieces, reply->n_pieces, reply->release,
                           reply->user);
    } else {
        release_pieces(reply->release, reply->user);
    }
    grpc_exchange_finish(stream);
}

static void stream_begin(struct http_exchange *exchange, const struct http_reply *reply) {
    struct h2_call *call = call_of(exchange);
    set_state(call, H2_STREAMING);
    if (grpc_exchange_is_open(call->stream)) {
        (void)submit_head(call, reply, UINT64_MAX, true);
    }
}

static void stream_send(struct http_exchange *exchange, const struct piece *pieces, size_t n_pieces,
                        void (*release)(void *user), void *user) {
    const struct h2_call *call = call_of(exchange);
    bool is_open = grpc_exchange_is_open(call->stream);
    assert(call->state == H2_STREAMING);
    if (is_open && n_pieces > 0) {
        grpc_exchange_send(call->stream, NULL, pieces, n_pieces, release, user);
        return;
    }
    release_pieces(release, user);
    if (is_open) { /* the body must not look complete without it */
        grpc_stream_reset(call->stream, NGHTTP2_INTERNAL_ERROR);
    }
}

static void stream_end(struct http_exchange *exchange) {
    struct h2_call *call = call_of(exchange);
    assert(call->state == H2_STREAMING);
    set_state(call, H2_REPLIED);
    grpc_exchange_finish(call->stream);
}

static struct arena *reply_arena(struct http_exchange *exchange) {
    struct h2_call *call = call_of(exchange);
    if (!call->reply_arena) {
        call->reply_arena = arena_new(worker_arenas(exchange->worker), 0);
    }
    return call->reply_arena;
}

static const struct http_version HTTP2 = {.reply = reply,
                                          .stream_begin = stream_begin,
                                          .stream_send = stream_send,
                                          .stream_end = stream_end,
                                          .reply_arena = reply_arena};

/* ---- the end --------------------------------------------------------------------------------- */

static void on_disconnect(struct h2_call *call) {
    struct http_exchange *exchange = &call->exchange;
    exchange->client_disconnected = true;
    exchange->account = NULL; /* it is freed with the connection, unless it holds something */
    if (exchange->handler && exchange->handler->on_disconnect) {
        exchange->handler->on_disconnect(exchange, exchange->router->context); /* may reply */
    }
    if (call->state == H2_BODY) { /* the handler waits for the body: it does not reply any more */
        set_state(call, H2_REPLIED);
        grpc_exchange_finish(call->stream);
    }
}

static void on_end(struct h2_call *call) {
    struct http_exchange *exchange = &call->exchange;
    if (exchange->handler && exchange->handler->on_end) {
        exchange->handler->on_end(exchange, exchange->router->context);
    }
    grpc_message_free(call->body);
    arena_free(call->reply_arena);
}

static void on_event(struct grpc_call *grpc_call, enum grpc_event event) {
    struct h2_call *call = grpc_call->user;
    if (event == GRPC_MESSAGE) {
        on_body(call, grpc_call->message);
    } else if (event == GRPC_CANCELLED) {
        on_disconnect(call);
    } else if (event == GRPC_END && call) { /* NULL: there was no memory for it */
        on_end(call);
    }
}

static void describe(const struct grpc_call *grpc_call, struct buf *out) {
    const struct h2_call *call = grpc_call->user;
    buf_add_str(out, STR("HTTP/2 "));
    buf_add_str(out, call->exchange.head.method);
}

void http_h2_init(struct http_server *server) {
    server->h2_requests = (struct grpc_http_requests){
        .user = server,
        .method = {.path = "HTTP", .on_event = on_event, .describe = describe},
        .on_head = on_head,
        .on_rejected = on_rejected,
        .skips = skips,
    };
}
