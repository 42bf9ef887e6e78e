/* A connection of MIP: header, payload, and what happens when they don't come. Packets are refused
 * before anything is allocated for them; payloads are read into their final place. It refuses to
 * look into a payload. */
#include "net/server/mip/conn.h"

#include <string.h>

#include "core/event/clock.h"

static const struct mip_handler *handler_of(const struct net_call *call) {
    return &mip_server_of(call->server_worker)->handler;
}

static struct mip_exchange *exchange_of(struct net_call *call) {
    return &((struct mip_call *)call)->exchange;
}

/* ---- payloads -------------------------------------------------------------------------------- */

static void payload_end(struct request_response_conn *conn) {
    struct net_call *call = conn->call;
    const struct mip_handler *handler = handler_of(call);
    request_response_set_state(conn, REQUEST_RESPONSE_WAIT);
    exchange_of(call)->payload = str_make(call->body.data, call->body.len);
    call->handler_started = true;
    handler->on_infer(exchange_of(call), handler->context);
}

/* No handler has seen it. */
static void payload_fail(struct request_response_conn *conn, const struct error *err) {
    struct net_call *call = conn->call;
    conn->call = NULL;
    net_call_finish(call);
    mip_refuse(conn, conn->skip_left, err);
}

static void fail_timeout(struct request_response_conn *conn, const char *why) {
    struct error err;
    conn->net.close_after_reply = true;
    error_set(&err, ST_REQUEST_TIMEOUT, "%s", why);
    payload_fail(conn, &err);
}

/* What follows from bytes having come, or having been refused. */
static void on_payload_bytes(struct request_response_conn *conn, enum status st,
                             const struct error *err) {
    if (st != ST_OK) {
        payload_fail(conn, err);
    } else if (conn->skip_left == 0) {
        payload_end(conn);
    } else if (net_call_body_is_too_slow(conn->call)) {
        fail_timeout(conn, "the payload comes too slowly (--min-body-rate)");
    }
}

static void on_read_buffer_filled(struct net_conn *net_conn, size_t n_bytes) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    struct error err;
    enum status st = request_response_advance_body(conn, n_bytes, &err);
    on_payload_bytes(conn, st, &err);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Refuses by what is announced (DESIGN, "Limits"; MIP, "Errors": ERROR_MEMORY). */
static enum status check_size(const struct server_worker *server_worker, uint32_t n_bytes,
                              struct error *err) {
    uint64_t most = mip_server_of(server_worker)->limits.max_body_size;
    if (n_bytes > most) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "expected a payload of at most %llu bytes (--max-body-size), got one of "
                         "%lu announced",
                         (unsigned long long)most, (unsigned long)n_bytes);
    }
    return body_check_budget(server_worker->server->budget, n_bytes, err);
}

/* Room for the payload. Returns: ST_NO_MEMORY. */
static enum status call_new(struct request_response_conn *conn, const struct mip_header *header,
                            struct error *err) {
    struct server_worker *server_worker = conn->net.server_worker;
    struct net_call *call = net_call_new(&conn->net, sizeof(struct mip_call));
    if (!call) {
        return error_set(err, ST_NO_MEMORY, "no memory for a request");
    }
    struct body_allocator means = {call->arena, &server_worker->pool,
                                   server_worker->server->budget};
    struct body_plan plan = {.length = header->n_bytes, .max_bytes = header->n_bytes};
    enum status st = body_init(&call->body, &means, &plan, err);
    if (st != ST_OK) {
        net_call_free(call);
        return st;
    }
    *exchange_of(call) = (struct mip_exchange){
        .arena = call->arena,
        .worker = server_worker->worker,
        .header = *header,
        .payload = STR(""),
        .listener = conn->net.listen_endpoint->user,
    };
    call->body_started_ns = clock_now_ns();
    conn->call = call;
    return ST_OK;
}

/* A header is here. */
static void packet_begin(struct request_response_conn *conn, const struct mip_header *header) {
    struct error err;
    enum status st = mip_header_check_request(header, &err);
    if (st == ST_OK && header->kind == MIP_PING) {
        mip_reply_ping(conn);
        return;
    }
    if (st == ST_OK) {
        st = check_size(conn->net.server_worker, header->n_bytes, &err);
    }
    if (st == ST_OK) {
        st = call_new(conn, header, &err);
    }
    if (st != ST_OK) {
        mip_refuse(conn, header->n_bytes, &err);
        return;
    }
    conn->skip_left = header->n_bytes;
    request_response_set_state(conn, REQUEST_RESPONSE_BODY);
    net_call_count_in_flight(conn->call);
}

static void read_header(struct mip_conn *conn, struct str *data) {
    size_t n = MIP_HEADER_BYTES - conn->n_head;
    struct mip_header header;
    n = n < data->len ? n : data->len;
    memcpy(conn->head + conn->n_head, data->ptr, n);
    conn->n_head = (uint8_t)(conn->n_head + n);
    *data = str_make(data->ptr + n, data->len - n);
    conn->serial.net.n_pipelined_bytes = data->len;
    if (conn->n_head == MIP_HEADER_BYTES) {
        mip_header_decode(conn->head, &header);
        packet_begin(&conn->serial, &header);
    }
}

static bool on_bytes(struct net_conn *net_conn, struct str *data) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    struct error err;
    switch ((enum request_response_state)conn->state) {
    case REQUEST_RESPONSE_IDLE:
        if (net_conn->n_flushing > 0) {
            return false;
        }
        ((struct mip_conn *)conn)->n_head = 0;
        net_conn->discarded = 0;
        request_response_set_state(conn, REQUEST_RESPONSE_HEAD);
        return true;
    case REQUEST_RESPONSE_HEAD:
        read_header((struct mip_conn *)conn, data);
        return true;
    case REQUEST_RESPONSE_BODY: {
        enum status st = request_response_add_body(conn, data, &err);
        on_payload_bytes(conn, st, &err);
        return true;
    }
    case REQUEST_RESPONSE_REPLY_SKIP:
    case REQUEST_RESPONSE_SKIP:
        request_response_skip_body(conn, data);
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
    net_conn->close_after_reply = true;
    request_response_set_state(conn, REQUEST_RESPONSE_HEAD);
    mip_refuse(conn, 0, err);
}

static void on_timeout(struct net_conn *net_conn, enum net_timeout timeout) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    if (timeout == NET_TIMEOUT_BODY && conn->state == REQUEST_RESPONSE_BODY) {
        fail_timeout(conn, "the payload did not come in time (--body-timeout)");
        return;
    }
    if (timeout == NET_TIMEOUT_HEAD) {
        mip_log_truncated(net_conn, "the header was not complete in time (--header-timeout)");
    }
    net_conn_close(net_conn);
}

static void on_close(struct net_conn *net_conn) {
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    if (net_conn->eof &&
        (conn->state == REQUEST_RESPONSE_HEAD || conn->state == REQUEST_RESPONSE_BODY)) {
        mip_log_truncated(net_conn, "the peer closed");
    }
    request_response_on_close(net_conn);
}

static void on_call_disconnected(struct net_call *call) {
    const struct mip_handler *handler = handler_of(call);
    exchange_of(call)->gone = true;
    if (handler->on_disconnect) {
        handler->on_disconnect(exchange_of(call), handler->context);
    }
}

static void on_call_end(struct net_call *call) {
    const struct mip_handler *handler = handler_of(call);
    if (handler->on_end) {
        handler->on_end(exchange_of(call), handler->context);
    }
}

const struct net_protocol mip_protocol = {
    .conn_bytes = sizeof(struct mip_conn),
    .on_refused = on_refused,
    .on_bytes = on_bytes,
    .read_buffer = request_response_read_buffer,
    .on_read_buffer_filled = on_read_buffer_filled,
    .on_eof = request_response_on_eof,
    .on_timeout = on_timeout,
    .on_close = on_close,
    .wants_to_read = request_response_wants_to_read,
    .timeout_of = request_response_timeout_of,
    .is_idle = request_response_is_idle,
    .on_written = request_response_on_written,
    .on_call_disconnected = on_call_disconnected,
    .on_call_end = on_call_end,
    .describe = request_response_describe,
};
