/* Requests on their way in: the head goes to the handler, the body to its place, and a body that
 * nobody wants is dropped where that keeps the connection. It refuses to look into a body. */
#include "net/http_conn.h"

#include <assert.h>

#include "loop/clock.h"

/* ---- heads ----------------------------------------------------------------------------------- */

/* Room for the body, and a word to a client that waits for one before it sends it. */
static void body_begin(struct http_conn *conn) {
    struct http_call *call = conn->call;
    struct http_exchange *exchange = &call->exchange;
    struct http_shard *shard = conn->shard;
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
    call->body_begun_ns = clock_now_ns();
    if (http_body_begin(&call->body, &means, &plan, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else if (!call->continued) {
        call->continued = true;
        http_write_continue(conn);
    }
}

void http_receive_head(struct http_conn *conn) {
    struct http_call *call = conn->call;
    struct http_exchange *exchange = &call->exchange;
    const struct http_handler *handler = &conn->shard->server->handler;
    exchange->head = *http1_request_head(call->request);
    const struct http_head *head = &exchange->head;
    exchange->suppress_body = str_is(head->method, "HEAD");
    /* Who sends the body at once does not wait. */
    call->continued = head->expect != HTTP_EXPECT_CONTINUE || conn->ahead > 0;
    call->skip_left = head->content_length;
    http_conn_set_state(conn, head->has_body ? HTTP_CONN_BODY : HTTP_CONN_WAIT);
    http_call_count(call);
    if (head->expect == HTTP_EXPECT_UNKNOWN) {
        struct error err;
        error_set(&err, ST_EXPECTATION_FAILED, "expected Expect: 100-continue and no other");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    call->begun = true;
    handler->on_head(exchange, handler->context);
    if (conn->state == HTTP_CONN_BODY) {
        body_begin(conn);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void body_end(struct http_conn *conn) {
    struct http_call *call = conn->call;
    const struct http_handler *handler = &conn->shard->server->handler;
    struct error err;
    enum status st = http_body_end(&call->body, &err);
    http_conn_set_state(conn, HTTP_CONN_WAIT);
    if (st != ST_OK) {
        http_reply_error(&call->exchange, &err, NULL, 0);
        return;
    }
    if (call->body.len > 0) {
        call->exchange.body = str_make(call->body.data, call->body.len);
    }
    handler->on_body(&call->exchange, handler->context);
}

static void body_fail(struct http_conn *conn, const struct error *err) {
    http_reply_error(&conn->call->exchange, err, NULL, 0);
}

static void too_slow(struct http_conn *conn, const char *why) {
    struct error err;
    conn->last = true;
    error_set(&err, ST_REQUEST_TIMEOUT, "%s", why);
    body_fail(conn, &err);
}

void http_receive_timed_out(struct http_conn *conn) {
    too_slow(conn, "the body of the request did not come in time (--body-timeout)");
}

/* A body may come slowly, but not so slowly that holding its memory is not worth it. */
static void keep_pace(struct http_conn *conn) {
    struct http_call *call = conn->call;
    const struct http_limits *limits = &conn->shard->server->limits;
    if (limits->min_body_rate == 0 || limits->body_timeout_ns == 0) {
        return;
    }
    uint64_t elapsed_ns = clock_now_ns() - call->body_begun_ns;
    double due = (double)limits->min_body_rate * ((double)elapsed_ns / 1e9);
    if (elapsed_ns > limits->body_timeout_ns && (double)call->received < due) {
        too_slow(conn, "the body of the request comes too slowly (--min-body-rate)");
    }
}

/* The length is known: as much of `data` as belongs to the body. */
static void known_add(struct http_conn *conn, struct str *data) {
    struct http_call *call = conn->call;
    uint64_t left = call->body.left;
    size_t n = data->len < left ? data->len : (size_t)left;
    struct str piece = str_make(data->ptr, n);
    struct error err;
    *data = str_make(data->ptr + n, data->len - n);
    conn->ahead = data->len;
    call->received += n;
    enum status st = http_body_add(&call->body, piece, &err);
    call->skip_left = call->body.left;
    if (st != ST_OK && call->skip_left > 0) {
        body_fail(conn, &err);
    } else if (st != ST_OK) {
        http_conn_set_state(conn, HTTP_CONN_WAIT); /* nothing is left to skip */
        body_fail(conn, &err);
    } else if (call->body.left == 0) {
        body_end(conn);
    }
}

/* One step of a chunked body. */
static void chunked_add(struct http_conn *conn, struct str *data) {
    struct http_call *call = conn->call;
    enum http1_request_event event;
    struct str piece;
    struct error err;
    enum status st = http1_request_step(call->request, data, &event, &piece, &err);
    conn->ahead = data->len;
    if (st != ST_OK) {
        conn->last = true; /* nobody knows where the next request begins */
        body_fail(conn, &err);
        return;
    }
    if (event == HTTP1_REQUEST_DONE) {
        body_end(conn);
        return;
    }
    if (event == HTTP1_REQUEST_BODY) {
        call->received += piece.len;
        st = http_body_add(&call->body, piece, &err);
    }
    if (st == ST_OK) {
        st = http_body_expect(&call->body, http1_request_chunk_left(call->request), &err);
    }
    if (st != ST_OK) {
        body_fail(conn, &err);
    }
}

void http_receive_body(struct http_conn *conn, struct str *data) {
    if (conn->call->exchange.head.chunked) {
        while (data->len > 0 && conn->state == HTTP_CONN_BODY) {
            chunked_add(conn, data);
        }
    } else {
        known_add(conn, data);
    }
    if (conn->state == HTTP_CONN_BODY) {
        keep_pace(conn);
    }
}

void http_receive_in_place(struct http_conn *conn, size_t n_bytes) {
    struct http_call *call = conn->call;
    struct error err;
    call->received += n_bytes;
    enum status st = http_body_advance(&call->body, n_bytes, &err);
    call->skip_left = call->body.left;
    if (st != ST_OK) {
        body_fail(conn, &err);
    } else if (call->body.left == 0) {
        body_end(conn);
    } else {
        keep_pace(conn);
    }
}

/* ---- bodies that nobody wants ---------------------------------------------------------------- */

bool http_receive_may_skip(struct http_call *call) {
    if (!call->continued) {
        return false; /* the client may send the body, or not */
    }
    uint64_t most = call->shard->server->limits.discard_bytes;
    most = most < HTTP_SKIP_BYTES ? most : HTTP_SKIP_BYTES;
    uint64_t left =
        call->exchange.head.chunked ? http1_request_chunk_left(call->request) : call->skip_left;
    return left <= most;
}

/* The body is longer than the connection is worth. */
static void skip_give_up(struct http_conn *conn) {
    conn->last = true;
    if (conn->state == HTTP_CONN_REPLY_SKIP) {
        http_conn_set_state(conn, HTTP_CONN_REPLY);
    } else {
        http_conn_next(conn);
    }
}

static void skip_end(struct http_conn *conn) {
    if (conn->state == HTTP_CONN_REPLY_SKIP) {
        http_conn_set_state(conn, HTTP_CONN_REPLY);
    } else {
        http_conn_next(conn);
    }
}

void http_receive_skip(struct http_conn *conn, struct str *data) {
    struct http_call *call = conn->call;
    size_t before = data->len;
    bool done = false;
    if (call->exchange.head.chunked) {
        enum http1_request_event event = HTTP1_REQUEST_MORE;
        struct str piece;
        struct error err;
        enum status st = ST_OK;
        while (st == ST_OK && data->len > 0 && event != HTTP1_REQUEST_DONE) {
            st = http1_request_step(call->request, data, &event, &piece, &err);
        }
        call->skipped += before - data->len;
        if (st != ST_OK || call->skipped > HTTP_SKIP_BYTES) {
            skip_give_up(conn);
            return;
        }
        done = event == HTTP1_REQUEST_DONE;
    } else {
        size_t n = data->len < call->skip_left ? data->len : (size_t)call->skip_left;
        *data = str_make(data->ptr + n, data->len - n);
        call->skip_left -= n;
        done = call->skip_left == 0;
    }
    conn->ahead = data->len;
    if (done) {
        skip_end(conn);
    }
}
