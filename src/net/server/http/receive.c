/* Requests on their way in: the head goes to the handler, the body to its place, and a body that
 * nobody wants is dropped where that keeps the connection. It refuses to look into a body. */
#include "net/server/http/conn.h"

#include "core/event/clock.h"

/* ---- heads ----------------------------------------------------------------------------------- */

/* Room for the body, and a word to a client that waits for one before it sends it. */
static void payload_begin(struct serial_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct http_exchange *exchange = &call->exchange;
    struct net_shard *shard = conn->net.shard;
    struct body_means means = {exchange->arena, &shard->pool, shard->server->budget};
    uint64_t length = exchange->head.content_length;
    length = length < UINT64_MAX ? length : UINT64_MAX - 1; /* which is far over any limit too */
    struct body_plan plan = {
        .length = exchange->head.chunked ? UINT64_MAX : length,
        .max_bytes = exchange->plan.max_bytes,
        .align_at = exchange->plan.align_at,
        .coding = exchange->plan.coding,
    };
    struct error err;
    call->base.body_begun_ns = clock_now_ns();
    if (body_begin(&call->base.body, &means, &plan, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else if (!call->continued) {
        call->continued = true;
        http_reply_continue(conn);
    }
}

void http_receive_head(struct serial_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    struct http_exchange *exchange = &call->exchange;
    const struct http_handler *handler = &http_server_of(conn->net.shard)->handler;
    exchange->head = *http1_request_head(call->request);
    const struct http_head *head = &exchange->head;
    exchange->suppress_body = str_is(head->method, "HEAD");
    /* Who sends the body at once does not wait. */
    call->continued = head->expect != HTTP_EXPECT_CONTINUE || conn->net.ahead > 0;
    conn->skip_left = head->content_length;
    serial_set_state(conn, head->has_body ? SERIAL_BODY : SERIAL_WAIT);
    net_call_count(&call->base);
    if (head->expect == HTTP_EXPECT_UNKNOWN) {
        struct error err;
        error_set(&err, ST_EXPECTATION_FAILED, "expected Expect: 100-continue and no other");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    call->base.begun = true;
    handler->on_head(exchange, handler->context);
    if (conn->state == SERIAL_BODY) {
        payload_begin(conn);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void payload_end(struct serial_conn *conn) {
    struct http_call *call = http_conn_call(conn);
    const struct http_handler *handler = &http_server_of(conn->net.shard)->handler;
    struct error err;
    enum status st = body_end(&call->base.body, &err);
    serial_set_state(conn, SERIAL_WAIT);
    if (st != ST_OK) {
        http_reply_error(&call->exchange, &err, NULL, 0);
        return;
    }
    if (call->base.body.len > 0) {
        call->exchange.body = str_make(call->base.body.data, call->base.body.len);
    }
    call->exchange.in_a_row = net_conn_may_gather(&conn->net);
    handler->on_body(&call->exchange, handler->context);
}

static void payload_fail(struct serial_conn *conn, const struct error *err) {
    http_reply_error(&http_conn_call(conn)->exchange, err, NULL, 0);
}

static void too_slow(struct serial_conn *conn, const char *why) {
    struct error err;
    conn->net.last = true;
    error_set(&err, ST_REQUEST_TIMEOUT, "%s", why);
    payload_fail(conn, &err);
}

void http_receive_timed_out(struct serial_conn *conn) {
    too_slow(conn, "the body of the request did not come in time (--body-timeout)");
}

/* A body may come slowly, but not so slowly that holding its memory is not worth it. */
static void keep_pace(struct serial_conn *conn) {
    if (net_call_is_too_slow(conn->call)) {
        too_slow(conn, "the body of the request comes too slowly (--min-body-rate)");
    }
}

/* The length is known: what follows from bytes having come, or having been refused. */
static void known_came(struct serial_conn *conn, enum status st, const struct error *err) {
    if (st != ST_OK) {
        if (conn->skip_left == 0) {
            serial_set_state(conn, SERIAL_WAIT); /* nothing is left to skip */
        }
        payload_fail(conn, err);
    } else if (conn->skip_left == 0) {
        payload_end(conn);
    } else {
        keep_pace(conn);
    }
}

/* One step of a chunked body. */
static void chunked_add(struct serial_conn *conn, struct str *data) {
    struct http_call *call = http_conn_call(conn);
    enum http1_request_event event;
    struct str piece;
    struct error err;
    enum status st = http1_request_step(call->request, data, &event, &piece, &err);
    conn->net.ahead = data->len;
    if (st != ST_OK) {
        conn->net.last = true; /* nobody knows where the next request begins */
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
        st = body_expect(&call->base.body, http1_request_chunk_left(call->request), &err);
    }
    if (st != ST_OK) {
        payload_fail(conn, &err);
    }
}

void http_receive_body(struct serial_conn *conn, struct str *data) {
    if (!http_conn_call(conn)->exchange.head.chunked) {
        struct error err;
        enum status st = serial_body_add(conn, data, &err);
        known_came(conn, st, &err);
        return;
    }
    while (data->len > 0 && conn->state == SERIAL_BODY) {
        chunked_add(conn, data);
    }
    if (conn->state == SERIAL_BODY) {
        keep_pace(conn);
    }
}

void http_receive_in_place(struct net_conn *net_conn, size_t n_bytes) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    struct error err;
    enum status st = serial_body_advance(conn, n_bytes, &err);
    known_came(conn, st, &err);
}

/* ---- bodies that nobody wants ---------------------------------------------------------------- */

bool http_receive_may_skip(struct http_call *call) {
    const struct serial_conn *conn = (const struct serial_conn *)call->base.conn;
    uint64_t left =
        call->exchange.head.chunked ? http1_request_chunk_left(call->request) : conn->skip_left;
    /* One that was not told to may send the body, or not. */
    return call->continued && left <= serial_most_skipped(conn);
}

static void chunked_skip(struct serial_conn *conn, struct str *data) {
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
    if (st != ST_OK || call->skipped > SERIAL_SKIP_BYTES) {
        conn->net.last = true; /* the body is longer than the connection is worth */
        serial_skip_end(conn);
        return;
    }
    conn->net.ahead = data->len;
    if (event == HTTP1_REQUEST_DONE) {
        serial_skip_end(conn);
    }
}

void http_receive_skip(struct serial_conn *conn, struct str *data) {
    if (http_conn_call(conn)->exchange.head.chunked) {
        chunked_skip(conn, data);
    } else {
        serial_skip(conn, data);
    }
}
