/* A connection of HTTP/1.1: what its bytes mean in each state, and what is said when they don't
 * come. It refuses to know bodies: receive.c does. */
#include "net/server/http/conn.h"

static const struct http_handler *handler_of(const struct net_call *call) {
    return &http_server_of(call->server_worker)->handler;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Returns: false when out of memory, and the connection is closed. */
static bool begin_request(struct request_response_conn *conn) {
    const struct http_limits *limits = &http_server_of(conn->net.server_worker)->limits;
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
    call->exchange.body = STR("");
    call->exchange.plan.max_bytes = limits->max_body_size;
    conn->call = base;
    conn->net.discarded = 0;
    request_response_set_state(conn, REQUEST_RESPONSE_HEAD);
    return true;
}

static void read_head(struct request_response_conn *conn, struct str *data) {
    struct http_call *call = http_conn_call(conn);
    enum http1_request_event event;
    struct str body;
    struct error err;
    enum status st = http1_request_step(call->request, data, &event, &body, &err);
    conn->net.n_pipelined_bytes = data->len;
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
        begin_request(conn);
        return true;
    case REQUEST_RESPONSE_HEAD:
        read_head(conn, data);
        return true;
    case REQUEST_RESPONSE_BODY:
        http_receive_body(conn, data);
        return true;
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

/* ---- what else happens to a connection ------------------------------------------------------- */

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
              "the head of the request was not complete in time (--header-timeout)");
    http_reply_error(&call->exchange, &err, NULL, 0);
}

static void on_timeout(struct net_conn *net_conn, enum net_timeout timeout) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    if (timeout == NET_TIMEOUT_HEAD) {
        head_timed_out(conn);
    } else if (conn->state == REQUEST_RESPONSE_BODY) {
        http_receive_timed_out(conn);
    } else {
        net_conn_close(net_conn);
    }
}

static void on_call_disconnected(struct net_call *call) {
    const struct http_handler *handler = handler_of(call);
    struct http_exchange *exchange = &((struct http_call *)call)->exchange;
    exchange->gone = true;
    http_stream_clear((struct http_call *)call);
    if (handler->on_disconnect) {
        handler->on_disconnect(exchange, handler->context);
    }
}

static void on_call_end(struct net_call *call) {
    const struct http_handler *handler = handler_of(call);
    http_stream_clear((struct http_call *)call);
    if (handler->on_end) {
        handler->on_end(&((struct http_call *)call)->exchange, handler->context);
    }
}

const struct net_protocol http_protocol = {
    .conn_bytes = sizeof(struct request_response_conn),
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
    .on_call_end = on_call_end,
    .describe = http_describe,
};
