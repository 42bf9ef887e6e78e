/* A connection of MIP: header, payload, and what happens when they don't come. Packets are refused
 * before anything is allocated for them; payloads are read into their final place. It refuses to
 * look into a payload. */
#include "net/server/mip/conn.h"

#include <string.h>

#include "core/event/clock.h"

static const struct mip_handler *handler_of(const struct net_call *call) {
    return &mip_server_of(call->shard)->handler;
}

static struct mip_exchange *exchange_of(struct net_call *call) {
    return &((struct mip_call *)call)->exchange;
}

/* ---- payloads -------------------------------------------------------------------------------- */

static void payload_end(struct serial_conn *conn) {
    struct net_call *call = conn->call;
    const struct mip_handler *handler = handler_of(call);
    serial_set_state(conn, SERIAL_WAIT);
    exchange_of(call)->payload = str_make(call->body.data, call->body.len);
    call->begun = true;
    handler->on_infer(exchange_of(call), handler->context);
}

/* No handler has seen it. */
static void payload_fail(struct serial_conn *conn, const struct error *err) {
    struct net_call *call = conn->call;
    conn->call = NULL;
    net_call_end(call);
    mip_refuse(conn, conn->skip_left, err);
}

static void too_slow(struct serial_conn *conn, const char *why) {
    struct error err;
    conn->net.last = true;
    error_set(&err, ST_REQUEST_TIMEOUT, "%s", why);
    payload_fail(conn, &err);
}

/* What follows from bytes having come, or having been refused. */
static void payload_came(struct serial_conn *conn, enum status st, const struct error *err) {
    if (st != ST_OK) {
        payload_fail(conn, err);
    } else if (conn->skip_left == 0) {
        payload_end(conn);
    } else if (net_call_is_too_slow(conn->call)) {
        too_slow(conn, "the payload comes too slowly (--min-body-rate)");
    }
}

static void on_room_filled(struct net_conn *net_conn, size_t n_bytes) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    struct error err;
    enum status st = serial_body_advance(conn, n_bytes, &err);
    payload_came(conn, st, &err);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Refuses by what is announced (DESIGN, "Limits"; MIP, "Errors": ERROR_MEMORY). */
static enum status check_size(const struct net_shard *shard, uint32_t n_bytes, struct error *err) {
    uint64_t most = mip_server_of(shard)->limits.max_body_bytes;
    if (n_bytes > most) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "expected a payload of at most %llu bytes (--max-body-size), got one of "
                         "%lu announced",
                         (unsigned long long)most, (unsigned long)n_bytes);
    }
    return body_fits(shard->server->budget, n_bytes, err);
}

/* Room for the payload. Returns: ST_NO_MEMORY. */
static enum status call_make(struct serial_conn *conn, const struct mip_header *header,
                             struct error *err) {
    struct net_shard *shard = conn->net.shard;
    struct net_call *call = net_call_new(&conn->net, sizeof(struct mip_call));
    if (!call) {
        return error_set(err, ST_NO_MEMORY, "no memory for a request");
    }
    struct body_means means = {call->arena, &shard->pool, shard->server->budget};
    struct body_plan plan = {.length = header->n_bytes, .max_bytes = header->n_bytes};
    enum status st = body_begin(&call->body, &means, &plan, err);
    if (st != ST_OK) {
        net_call_discard(call);
        return st;
    }
    *exchange_of(call) = (struct mip_exchange){
        .arena = call->arena,
        .worker = shard->worker,
        .header = *header,
        .payload = STR(""),
        .listener = conn->net.entrance->cookie,
    };
    call->body_begun_ns = clock_now_ns();
    conn->call = call;
    return ST_OK;
}

/* A header is here. */
static void packet_begin(struct serial_conn *conn, const struct mip_header *header) {
    struct error err;
    enum status st = mip_header_check_request(header, &err);
    if (st == ST_OK && header->kind == MIP_PING) {
        mip_reply_ping(conn);
        return;
    }
    if (st == ST_OK) {
        st = check_size(conn->net.shard, header->n_bytes, &err);
    }
    if (st == ST_OK) {
        st = call_make(conn, header, &err);
    }
    if (st != ST_OK) {
        mip_refuse(conn, header->n_bytes, &err);
        return;
    }
    conn->skip_left = header->n_bytes;
    serial_set_state(conn, SERIAL_BODY);
    net_call_count(conn->call);
}

static void read_header(struct mip_conn *conn, struct str *data) {
    size_t n = MIP_HEADER_BYTES - conn->n_head;
    struct mip_header header;
    n = n < data->len ? n : data->len;
    memcpy(conn->head + conn->n_head, data->ptr, n);
    conn->n_head = (uint8_t)(conn->n_head + n);
    *data = str_make(data->ptr + n, data->len - n);
    conn->serial.net.ahead = data->len;
    if (conn->n_head == MIP_HEADER_BYTES) {
        mip_header_decode(conn->head, &header);
        packet_begin(&conn->serial, &header);
    }
}

static bool on_bytes(struct net_conn *net_conn, struct str *data) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    struct error err;
    switch ((enum serial_state)conn->state) {
    case SERIAL_IDLE:
        if (net_conn->n_flushing > 0) {
            return false;
        }
        ((struct mip_conn *)conn)->n_head = 0;
        net_conn->discarded = 0;
        serial_set_state(conn, SERIAL_HEAD);
        return true;
    case SERIAL_HEAD:
        read_header((struct mip_conn *)conn, data);
        return true;
    case SERIAL_BODY: {
        enum status st = serial_body_add(conn, data, &err);
        payload_came(conn, st, &err);
        return true;
    }
    case SERIAL_REPLY_SKIP:
    case SERIAL_SKIP:
        serial_skip(conn, data);
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
    net_conn->last = true;
    serial_set_state(conn, SERIAL_HEAD);
    mip_refuse(conn, 0, err);
}

static void on_timeout(struct net_conn *net_conn, enum net_timeout timeout) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    if (timeout == NET_TIMEOUT_BODY && conn->state == SERIAL_BODY) {
        too_slow(conn, "the payload did not come in time (--body-timeout)");
        return;
    }
    if (timeout == NET_TIMEOUT_HEAD) {
        mip_log_truncated(net_conn, "the header was not complete in time (--header-timeout)");
    }
    net_conn_close(net_conn);
}

static void on_close(struct net_conn *net_conn) {
    const struct serial_conn *conn = (const struct serial_conn *)net_conn;
    if (net_conn->eof && (conn->state == SERIAL_HEAD || conn->state == SERIAL_BODY)) {
        mip_log_truncated(net_conn, "the peer closed");
    }
    serial_on_close(net_conn);
}

static void on_call_gone(struct net_call *call) {
    const struct mip_handler *handler = handler_of(call);
    exchange_of(call)->gone = true;
    if (handler->on_gone) {
        handler->on_gone(exchange_of(call), handler->context);
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
    .room = serial_room,
    .on_room_filled = on_room_filled,
    .on_eof = serial_on_eof,
    .on_timeout = on_timeout,
    .on_close = on_close,
    .wants_to_read = serial_wants_to_read,
    .timeout_of = serial_timeout_of,
    .is_idle = serial_is_idle,
    .on_written = serial_on_written,
    .on_call_gone = on_call_gone,
    .on_call_end = on_call_end,
    .describe = serial_describe,
};
