/* A connection of HTTP/1.1: what its bytes mean in each state, and what is said when they don't
 * come. It refuses to know bodies: receive.c does. */
#include "net/server/http/conn.h"

static const struct http_handler *handler_of(const struct net_call *call) {
    return &http_server_of(call->shard)->handler;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Returns: false when out of memory, and the connection is closed. */
static bool begin(struct serial_conn *conn) {
    const struct http_limits *limits = &http_server_of(conn->net.shard)->limits;
    struct net_call *base = net_call_new(&conn->net, sizeof(struct http_call));
    struct http_call *call = (struct http_call *)base;
    if (call) {
        call->request = http1_request_new(base->arena, limits->max_header_bytes);
    }
    if (!call || !call->request) {
        if (call) {
            net_call_discard(base);
        }
        net_conn_close(&conn->net);
        return false;
    }
    call->exchange.arena = base->arena;
    call->exchange.worker = conn->net.shard->worker;
    call->exchange.body = STR("");
    call->exchange.plan.max_bytes = limits->max_body_bytes;
    conn->call = base;
    conn->net.discarded = 0;
    serial_set_state(conn, SERIAL_HEAD);
    return true;
}

static void read_head(struct serial_conn *conn, struct str *data) {
    struct http_call *call = http_conn_call(conn);
    enum http1_request_event event;
    struct str body;
    struct error err;
    enum status st = http1_request_step(call->request, data, &event, &body, &err);
    conn->net.ahead = data->len;
    if (st != ST_OK) {
        http_reply_error(&call->exchange, &err, NULL, 0);
    } else if (event == HTTP1_REQUEST_HEAD) {
        http_receive_head(conn);
    }
}

static bool on_bytes(struct net_conn *net_conn, struct str *data) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    switch ((enum serial_state)conn->state) {
    case SERIAL_IDLE:
        if (net_conn->n_flushing > 0) {
            return false;
        }
        begin(conn);
        return true;
    case SERIAL_HEAD:
        read_head(conn, data);
        return true;
    case SERIAL_BODY:
        http_receive_body(conn, data);
        return true;
    case SERIAL_REPLY_SKIP:
    case SERIAL_SKIP:
        http_receive_skip(conn, data);
        return true;
    case SERIAL_WAIT:
    case SERIAL_REPLY:
        if (!net_conn->last) {
            return false;
        }
        break;
    case SERIAL_ENDED:
    case SERIAL_STATES:
        break;
    }
    net_conn_discard(net_conn, data);
    return true;
}

/* ---- what else happens to a connection ------------------------------------------------------- */

static void on_refused(struct net_conn *net_conn, const struct error *err) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    if (begin(conn)) {
        http_reply_error(&http_conn_call(conn)->exchange, err, NULL, 0);
    }
}

static void head_timed_out(struct serial_conn *conn) {
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
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    if (timeout == NET_TIMEOUT_HEAD) {
        head_timed_out(conn);
    } else if (conn->state == SERIAL_BODY) {
        http_receive_timed_out(conn);
    } else {
        net_conn_close(net_conn);
    }
}

static void on_call_gone(struct net_call *call) {
    const struct http_handler *handler = handler_of(call);
    struct http_exchange *exchange = &((struct http_call *)call)->exchange;
    exchange->gone = true;
    http_stream_drop((struct http_call *)call);
    if (handler->on_gone) {
        handler->on_gone(exchange, handler->context);
    }
}

static void on_call_end(struct net_call *call) {
    const struct http_handler *handler = handler_of(call);
    http_stream_drop((struct http_call *)call);
    if (handler->on_end) {
        handler->on_end(&((struct http_call *)call)->exchange, handler->context);
    }
}

const struct net_protocol http_protocol = {
    .conn_bytes = sizeof(struct serial_conn),
    .alpn = "\x08http/1.1\x08http/1.0",
    .on_refused = on_refused,
    .on_bytes = on_bytes,
    .room = serial_room,
    .on_room_filled = http_receive_in_place,
    .on_eof = serial_on_eof,
    .on_timeout = on_timeout,
    .on_close = serial_on_close,
    .wants_to_read = serial_wants_to_read,
    .timeout_of = serial_timeout_of,
    .is_idle = serial_is_idle,
    .on_written = http_stream_on_written,
    .on_call_gone = on_call_gone,
    .on_call_end = on_call_end,
    .describe = http_describe,
};
