/* Requests on their way in: the head goes to the handler, the body to its place, and a body that
 * nobody wants is dropped where that keeps the connection. It refuses to look into a body. */
#include "net/server/http/conn.h"

#include "core/event/clock.h"

/* ---- heads ----------------------------------------------------------------------------------- */

/* Room for the body, and a word to a client that waits for one before it sends it. */
static void payload_begin(struct request_response_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct http_exchange *exchange = &call->exchange;
    struct server_worker *server_worker = conn->net.server_worker;
    struct body_allocator means = {exchange->arena, &server_worker->pool,
                                   server_worker->server->budget};
    uint64_t length = exchange->head.content_length;
    length = length < UINT64_MAX ? length : UINT64_MAX - 1; /* which is far over any limit too */
    struct body_plan plan = {
        .length = exchange->head.chunked ? UINT64_MAX : length,
        .max_bytes = exchange->plan.max_bytes,
        .align_at = exchange->plan.align_at,
        .coding = exchange->plan.coding,
    };
    struct error err;
    call->base.body_started_ns = clock_now_ns();
    if (body_init(&call->base.body, &means, &plan, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else if (!call->may_send_body) {
        call->may_send_body = true;
        http_send_continue(conn);
    }
}

void http_receive_head(struct request_response_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct http_exchange *exchange = &call->exchange;
    const struct http_handler *handler = &http_server_of(conn->net.server_worker)->handler;
    exchange->head = *http1_request_head(call->request);
    const struct http_head *head = &exchange->head;
    exchange->suppress_body = str_is(head->method, "HEAD");
    /* Who sends the body at once does not wait. */
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
    handler->on_head(exchange, handler->context);
    if (conn->state == REQUEST_RESPONSE_BODY) {
        payload_begin(conn);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void payload_end(struct request_response_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    const struct http_handler *handler = &http_server_of(conn->net.server_worker)->handler;
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
    handler->on_body(&call->exchange, handler->context);
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

void http_receive_timed_out(struct request_response_conn *conn) {
    fail_timeout(conn, "the body of the request did not come in time (--body-timeout)");
}

/* A body may come slowly, but not so slowly that holding its memory is not worth it. */
static void check_min_rate(struct request_response_conn *conn) {
    if (net_call_body_is_too_slow(conn->call)) {
        fail_timeout(conn, "the body of the request comes too slowly (--min-body-rate)");
    }
}

/* The length is known: what follows from bytes having come, or having been refused. */
static void on_body_bytes(struct request_response_conn *conn, enum status st,
                          const struct error *err) {
    if (st != ST_OK) {
        if (conn->skip_left == 0) {
            request_response_set_state(conn, REQUEST_RESPONSE_WAIT); /* nothing is left to skip */
        }
        payload_fail(conn, err);
    } else if (conn->skip_left == 0) {
        payload_end(conn);
    } else {
        check_min_rate(conn);
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
        conn->net.close_after_reply = true; /* nobody knows where the next request begins */
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

void http_receive_body(struct request_response_conn *conn, struct str *data) {
    if (!http_conn_call(conn)->exchange.head.chunked) {
        struct error err;
        enum status st = request_response_add_body(conn, data, &err);
        on_body_bytes(conn, st, &err);
        return;
    }
    while (data->len > 0 && conn->state == REQUEST_RESPONSE_BODY) {
        chunked_add(conn, data);
    }
    if (conn->state == REQUEST_RESPONSE_BODY) {
        check_min_rate(conn);
    }
}

void http_receive_in_place(struct net_conn *net_conn, size_t n_bytes) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    struct error err;
    enum status st = request_response_advance_body(conn, n_bytes, &err);
    on_body_bytes(conn, st, &err);
}

/* ---- bodies that nobody wants ---------------------------------------------------------------- */

bool http_receive_may_skip(struct http_call *call) {
    const struct request_response_conn *conn =
        (const struct request_response_conn *)call->base.conn;
    uint64_t left =
        call->exchange.head.chunked ? http1_request_chunk_left(call->request) : conn->skip_left;
    /* One that was not told to may send the body, or not. */
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
        conn->net.close_after_reply = true; /* the body is longer than the connection is worth */
        request_response_finish_skip(conn);
        return;
    }
    conn->net.n_pipelined_bytes = data->len;
    if (event == HTTP1_REQUEST_DONE) {
        request_response_finish_skip(conn);
    }
}

void http_receive_skip(struct request_response_conn *conn, struct str *data) {
    if (http_conn_call(conn)->exchange.head.chunked) {
        chunked_skip(conn, data);
    } else {
        request_response_skip_body(conn, data);
    }
}
