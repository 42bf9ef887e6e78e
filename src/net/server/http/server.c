/* The HTTP server: net/server/server.h with HTTP's limits, router and common fields; and its
 * connections: heads go to the router, bodies to memory, and refused bodies are dropped where that
 * keeps the connection. */
#include "net/server/http/server.h"

#include <stdlib.h>

#include "core/event/clock.h"
#include "net/server/http/conn.h"
#include "net/server/report.h"

/* ---- heads ----------------------------------------------------------------------------------- */

/* Prepares memory for the body, and sends 100 Continue to a client that waits for it. */
static void payload_begin(struct request_response_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct http_exchange *exchange = &call->exchange;
    struct server_worker *server_worker = conn->net.server_worker;
    struct body_allocator means = {exchange->arena, &server_worker->pool,
                                   server_worker->server->budget, NET_BODY_HTTP};
    uint64_t length = exchange->head.content_length;
    length = length < UINT64_MAX ? length : UINT64_MAX - 1; /* far over any limit too */
    struct body_plan plan = {
        .length = exchange->head.chunked ? UINT64_MAX : length,
        .max_bytes = exchange->plan.max_bytes,
        .setting = exchange->plan.setting,
        .align_at = exchange->plan.align_at,
        .coding = exchange->plan.coding,
    };
    struct error err;
    call->base.body_rate.since_ns = clock_now_ns();
    if (body_init(&call->base.body, &means, &plan, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else if (!call->may_send_body) {
        call->may_send_body = true;
        http_send_continue(conn);
    }
}

enum { FREE_HEAD_BYTES = 16384 }; /* of an incomplete head that do not count in the budget */

static void *router_context(const struct net_call *call) {
    return http_server_of(call->server_worker)->router.context;
}

/* The head is complete: calls the router, then prepares for the body. */
static void http_receive_head(struct request_response_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct http_exchange *exchange = &call->exchange;
    const struct http_router *router = &http_server_of(conn->net.server_worker)->router;
    exchange->head = *http1_request_head(call->request);
    const struct http_head *head = &exchange->head;
    exchange->suppress_body = str_is(head->method, "HEAD");
    /* A client that sends the body at once does not wait for 100 Continue. */
    call->may_send_body = head->expect != HTTP_EXPECT_CONTINUE || conn->net.n_pipelined_bytes > 0;
    conn->skip_left = head->content_length;
    request_response_set_state(conn,
                               head->has_body ? REQUEST_RESPONSE_BODY : REQUEST_RESPONSE_WAIT);
    net_call_count_in_flight(&call->base);
    if (head->expect == HTTP_EXPECT_UNKNOWN) {
        struct error err;
        error_set(&err, ST_EXPECTATION_FAILED, "expected Expect: 100-continue and no other");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    call->base.handler_started = true;
    router->on_head(exchange, router->context);
    if (conn->state == REQUEST_RESPONSE_BODY) {
        payload_begin(conn);
    } else if (!call->base.replied && exchange->handler && exchange->handler->on_body) {
        exchange->handler->on_body(exchange, router->context);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void payload_end(struct request_response_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct error err;
    enum status st = body_finish(&call->base.body, &err);
    request_response_set_state(conn, REQUEST_RESPONSE_WAIT);
    if (st != ST_OK) {
        http_reply_error(&call->exchange, &err, NULL, 0);
        return;
    }
    if (call->base.body.len > 0) {
        call->exchange.body = str_make(call->base.body.data, call->base.body.len);
    }
    call->exchange.pipelined = net_conn_may_coalesce(&conn->net);
    call->exchange.handler->on_body(&call->exchange, router_context(&call->base));
}

static void payload_fail(struct request_response_conn *conn, const struct error *err) {
    http_reply_error(&http_conn_call(conn)->exchange, err, NULL, 0);
}

static void fail_timeout(struct request_response_conn *conn, const char *why) {
    struct error err;
    conn->net.close_after_reply = true;
    error_set(&err, ST_REQUEST_TIMEOUT, "%s", why);
    payload_fail(conn, &err);
}

/* After all that was read. A slow body is accepted down to min_body_rate, as it holds memory. */
static void check_min_rate(struct request_response_conn *conn) {
    if (conn->state == REQUEST_RESPONSE_BODY && net_call_body_is_too_slow(conn->call)) {
        fail_timeout(conn, "the request body is too slow (--min-body-rate)");
    }
}

/* Body of known length: continues after bytes were added or refused. */
static void on_body_bytes(struct request_response_conn *conn, enum status st,
                          const struct error *err) {
    if (st != ST_OK) {
        if (conn->skip_left == 0) {
            request_response_set_state(conn, REQUEST_RESPONSE_WAIT); /* the whole body arrived */
        }
        payload_fail(conn, err);
    } else if (conn->skip_left == 0) {
        payload_end(conn);
    }
}

/* One step of a chunked body. */
static void chunked_add(struct request_response_conn *conn, struct str *data) {
    struct http_call *call = http_conn_call(conn);
    enum http1_request_event event;
    struct str piece;
    struct error err;
    enum status st = http1_request_step(call->request, data, &event, &piece, &err);
    conn->net.n_pipelined_bytes = data->len;
    if (st != ST_OK) {
        conn->net.close_after_reply = true; /* the start of the next request is unknown */
        payload_fail(conn, &err);
        return;
    }
    if (event == HTTP1_REQUEST_DONE) {
        payload_end(conn);
        return;
    }
    if (event == HTTP1_REQUEST_BODY) {
        call->base.received += piece.len;
        st = body_add(&call->base.body, piece, &err);
    }
    if (st == ST_OK) {
        st = body_check_size(&call->base.body, http1_request_chunk_left(call->request), &err);
    }
    if (st != ST_OK) {
        payload_fail(conn, &err);
    }
}

/* Removes what was consumed from `data`. */
static void receive_body_bytes(struct request_response_conn *conn, struct str *data) {
    if (!http_conn_call(conn)->exchange.head.chunked) {
        struct error err;
        enum status st = request_response_add_body(conn, data, &err);
        on_body_bytes(conn, st, &err);
        return;
    }
    while (data->len > 0 && conn->state == REQUEST_RESPONSE_BODY) {
        chunked_add(conn, data);
    }
}

/* Decompresses a slice of the body. Returns: false at its end: the rest of the data is pending
 * until the loop has polled. */
static bool receive_compressed(struct request_response_conn *conn, struct str *data) {
    struct inflate_slice slice = inflate_slice_start(INFLATE_SLICE_BYTES);
    while (data->len > 0 && conn->state == REQUEST_RESPONSE_BODY) {
        if (slice.left == 0) {
            server_worker_schedule_resume(conn->net.server_worker, &conn->net);
            return false;
        }
        size_t wanted = inflate_slice_input(&slice);
        size_t n = data->len < wanted ? data->len : wanted;
        size_t before = conn->call->body.len;
        struct str part = str_make(data->ptr, n);
        receive_body_bytes(conn, &part);
        size_t n_used = n - part.len;
        *data = str_make(part.ptr, data->len - n_used);
        if (conn->state == REQUEST_RESPONSE_BODY) {
            inflate_slice_count(&slice, n_used, conn->call->body.len - before);
        }
    }
    return true;
}

/* Processes bytes of the body (state BODY); http_receive_skip those of a skipped one. Removes what
 * was consumed from `data`. Returns: false when the rest must wait. */
static bool http_receive_body(struct request_response_conn *conn, struct str *data) {
    if (conn->call->body.inflate) {
        if (!receive_compressed(conn, data)) {
            return false;
        }
    } else {
        receive_body_bytes(conn, data);
    }
    if (data->len == 0) {
        check_min_rate(conn);
    }
    return true;
}

/* Bytes were read straight into the body. */
static void http_receive_in_place(struct net_conn *net_conn, size_t n_bytes) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    struct error err;
    enum status st = request_response_advance_body(conn, n_bytes, &err);
    on_body_bytes(conn, st, &err);
    check_min_rate(conn);
}

/* ---- skipped bodies -------------------------------------------------------------------------- */

bool http_receive_may_skip(struct http_call *call) {
    const struct request_response_conn *conn =
        (const struct request_response_conn *)call->base.conn;
    uint64_t left =
        call->exchange.head.chunked ? http1_request_chunk_left(call->request) : conn->skip_left;
    /* A client that got no 100 Continue may send the body, or not. */
    return call->may_send_body && left <= request_response_max_skipped(conn);
}

static void chunked_skip(struct request_response_conn *conn, struct str *data) {
    struct http_call *call = http_conn_call(conn);
    enum http1_request_event event = HTTP1_REQUEST_MORE;
    struct str piece;
    struct error err;
    enum status st = ST_OK;
    size_t before = data->len;
    while (st == ST_OK && data->len > 0 && event != HTTP1_REQUEST_DONE) {
        st = http1_request_step(call->request, data, &event, &piece, &err);
    }
    call->skipped += before - data->len;
    if (st != ST_OK || call->skipped > REQUEST_RESPONSE_SKIP_MAX_BYTES) {
        conn->net.close_after_reply = true; /* the body exceeds what is skipped */
        request_response_finish_skip(conn);
        return;
    }
    conn->net.n_pipelined_bytes = data->len;
    if (event == HTTP1_REQUEST_DONE) {
        request_response_finish_skip(conn);
    }
}

static void http_receive_skip(struct request_response_conn *conn, struct str *data) {
    if (http_conn_call(conn)->exchange.head.chunked) {
        chunked_skip(conn, data);
    } else {
        request_response_skip_body(conn, data);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct arena *reply_arena(struct http_exchange *exchange) {
    return net_call_reply_arena(&http_call_of(exchange)->base);
}

static const struct http_version HTTP1 = {.reply = http1_reply,
                                          .stream_begin = http1_stream_begin,
                                          .stream_send = http1_stream_send,
                                          .stream_end = http1_stream_end,
                                          .reply_arena = reply_arena};

/* Returns: false when out of memory; the connection is closed. */
static bool begin_request(struct request_response_conn *conn) {
    const struct net_limits *limits = &conn->net.server_worker->server->limits;
    struct net_call *base = net_call_new(&conn->net, sizeof(struct http_call));
    struct http_call *call = (struct http_call *)base;
    if (call) {
        call->request = http1_request_new(base->arena, limits->max_header_size);
    }
    if (!call || !call->request) {
        if (call) {
            net_call_free(base);
        }
        net_conn_close(&conn->net);
        return false;
    }
    call->exchange.arena = base->arena;
    call->exchange.worker = conn->net.server_worker->worker;
    call->exchange.account = conn->net.account;
    call->exchange.listener = &conn->net.listen_endpoint->web;
    call->exchange.body = STR("");
    call->exchange.plan.max_bytes = limits->max_body_size;
    call->exchange.version = &HTTP1;
    call->exchange.router = &http_server_of(conn->net.server_worker)->router;
    conn->call = base;
    conn->net.discarded = 0;
    request_response_set_state(conn, REQUEST_RESPONSE_HEAD);
    return true;
}

/* The head is not complete: counts it once it is large, as it may stay for --header-timeout. */
static enum status reserve_head(struct net_call *call, struct error *err) {
    struct net_budget *budget = call->server_worker->server->budget;
    size_t n_bytes = arena_bytes(call->arena);
    if (n_bytes <= FREE_HEAD_BYTES || n_bytes <= call->n_head_reserved) {
        return ST_OK;
    }
    if (!net_budget_reserve(budget, NET_BODY_HTTP, n_bytes - call->n_head_reserved)) {
        return net_budget_error(budget, err);
    }
    call->n_head_reserved = n_bytes;
    return ST_OK;
}

static void read_head(struct request_response_conn *conn, struct str *data) {
    struct http_call *call = http_conn_call(conn);
    enum http1_request_event event;
    struct str body;
    struct error err;
    enum status st = http1_request_step(call->request, data, &event, &body, &err);
    conn->net.n_pipelined_bytes = data->len;
    if (st == ST_OK && event == HTTP1_REQUEST_MORE) {
        st = reserve_head(&call->base, &err);
        conn->net.close_after_reply = conn->net.close_after_reply || st != ST_OK;
    }
    if (st != ST_OK) {
        http_reply_error(&call->exchange, &err, NULL, 0);
    } else if (event == HTTP1_REQUEST_HEAD) {
        http_receive_head(conn);
    }
}

static bool on_bytes(struct net_conn *net_conn, struct str *data) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    switch ((enum request_response_state)conn->state) {
    case REQUEST_RESPONSE_IDLE:
        if (net_conn->n_flushing > 0) {
            return false;
        }
        if (!begin_request(conn)) {
            return true;
        }
        __attribute__((fallthrough));
    case REQUEST_RESPONSE_HEAD:
        read_head(conn, data);
        return true;
    case REQUEST_RESPONSE_BODY:
        return http_receive_body(conn, data);
    case REQUEST_RESPONSE_REPLY_SKIP:
    case REQUEST_RESPONSE_SKIP:
        http_receive_skip(conn, data);
        return true;
    case REQUEST_RESPONSE_WAIT:
    case REQUEST_RESPONSE_REPLY:
        if (!net_conn->close_after_reply) {
            return false;
        }
        break;
    case REQUEST_RESPONSE_ENDED:
    case REQUEST_RESPONSE_STATES:
        break;
    }
    net_conn_discard(net_conn, data);
    return true;
}

/* ---- hooks of struct net_protocol ------------------------------------------------------------ */

static void on_refused(struct net_conn *net_conn, const struct error *err) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    if (begin_request(conn)) {
        http_reply_error(&http_conn_call(conn)->exchange, err, NULL, 0);
    }
}

static void head_timed_out(struct request_response_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct error err;
    if (!http1_request_has_begun(call->request)) {
        net_conn_close(&conn->net);
        return;
    }
    error_set(&err, ST_REQUEST_TIMEOUT,
              "timed out waiting for the request head (--header-timeout)");
    http_reply_error(&call->exchange, &err, NULL, 0);
}

static void on_timeout(struct net_conn *net_conn, enum net_timeout timeout) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    if (timeout == NET_TIMEOUT_HEAD) {
        head_timed_out(conn);
    } else if (conn->state == REQUEST_RESPONSE_BODY) {
        fail_timeout(conn, "timed out waiting for the request body (--body-timeout)");
    } else {
        net_conn_close(net_conn);
    }
}

static void on_call_disconnected(struct net_call *call) {
    struct http_exchange *exchange = &((struct http_call *)call)->exchange;
    exchange->client_disconnected = true;
    exchange->account = NULL; /* it is freed with the connection, unless it holds something */
    http_stream_clear((struct http_call *)call);
    if (exchange->handler && exchange->handler->on_disconnect) {
        exchange->handler->on_disconnect(exchange, router_context(call));
    }
}

static void on_call_half_closed(struct net_call *call) {
    struct http_exchange *exchange = &((struct http_call *)call)->exchange;
    exchange->client_half_closed = true;
    if (exchange->handler && exchange->handler->on_disconnect) {
        exchange->handler->on_disconnect(exchange, router_context(call));
    }
}

static void on_call_end(struct net_call *call) {
    struct http_exchange *exchange = &((struct http_call *)call)->exchange;
    http_stream_clear((struct http_call *)call);
    if (exchange->handler && exchange->handler->on_end) {
        exchange->handler->on_end(exchange, router_context(call));
    }
}

static void describe(const struct net_conn *net_conn, struct buf *out) {
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    const struct http_call *call = http_conn_call(conn);
    request_response_describe(net_conn, out);
    if (call && call->exchange.head.method.len > 0) {
        buf_add_str(out, STR(" ("));
        net_report_add_name(out, call->exchange.head.method);
        buf_add_char(out, ' ');
        net_report_add_name(out, call->exchange.head.path);
        buf_add_char(out, ')');
    }
}

const struct net_protocol http_protocol = {
    .name = "http",
    .conn_bytes = sizeof(struct http_conn),
    .conn_memory_bytes = 6144, /* a call takes a chunk of an arena, 4 KiB */
    .alpn = "\x08http/1.1\x08http/1.0",
    .on_refused = on_refused,
    .on_bytes = on_bytes,
    .read_buffer = request_response_read_buffer,
    .on_read_buffer_filled = http_receive_in_place,
    .on_eof = request_response_on_eof,
    .on_timeout = on_timeout,
    .on_close = request_response_on_close,
    .wants_to_read = request_response_wants_to_read,
    .timeout_of = request_response_timeout_of,
    .is_idle = request_response_is_idle,
    .on_written = http_stream_on_written,
    .on_call_disconnected = on_call_disconnected,
    .on_call_half_closed = on_call_half_closed,
    .on_call_end = on_call_end,
    .body_bytes = request_response_body_bytes,
    .describe = describe,
};

enum status http_server_new(const struct http_server_options *options, struct http_server **out,
                            struct error *err) {
    struct net_server_options net = {
        .protocol = &http_protocol,
        .other = options->h2 ? grpc_server_net(options->h2) : NULL,
        .limits = options->limits,
        .budget = options->budget,
        .workers = options->workers,
        .n_workers = options->n_workers,
        .acceptor = options->acceptor,
    };
    struct http_server *server = calloc(1, sizeof(*server));
    struct http_common_fields *commons = calloc(options->n_workers, sizeof(*commons));
    if (!server || !commons) {
        free(server);
        free(commons);
        return error_no_memory(err, "the HTTP server");
    }
    server->h2 = options->h2;
    if (server->h2) {
        http_detecting_init(server);
        http_h2_init(server);
        grpc_server_set_http_requests(server->h2, &server->h2_requests);
        net.protocol = &server->detecting;
    }
    enum status st = net_server_init(&server->net, &net, err);
    if (st != ST_OK) {
        free(server);
        free(commons);
        return st;
    }
    server->router = options->router;
    server->server_name = options->server_name;
    server->common_fields = commons;
    *out = server;
    return ST_OK;
}

void http_server_free(struct http_server *server) {
    if (server) {
        net_server_fini(&server->net);
        free(server->common_fields);
        free(server);
    }
}

enum status http_server_listen(struct http_server *server, const struct address *address,
                               const struct tls_server *tls, struct address *bound,
                               struct error *err) {
    return net_server_listen(&server->net, address, tls, NULL, bound, err);
}

struct net_server *http_server_net(struct http_server *server) {
    return &server->net;
}
