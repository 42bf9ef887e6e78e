/* From one request of a connection to the next. It refuses to know what a request looks like. */
#include "net/server/serial.h"

#include <assert.h>

#define FROM(state) (1u << SERIAL_##state)

void serial_set_state(struct serial_conn *conn, enum serial_state state) {
    static const unsigned PREDECESSORS[SERIAL_STATES] = {
        [SERIAL_IDLE] = FROM(REPLY) | FROM(SKIP),
        [SERIAL_HEAD] = FROM(IDLE),
        [SERIAL_BODY] = FROM(HEAD),
        [SERIAL_WAIT] = FROM(HEAD) | FROM(BODY),
        [SERIAL_REPLY] = FROM(HEAD) | FROM(BODY) | FROM(WAIT) | FROM(REPLY_SKIP),
        [SERIAL_REPLY_SKIP] = FROM(HEAD) | FROM(BODY),
        [SERIAL_SKIP] = FROM(REPLY_SKIP),
        [SERIAL_ENDED] = (1u << SERIAL_STATES) - 1,
    };
    assert(PREDECESSORS[state] & (1u << conn->state));
    conn->state = (uint8_t)state;
}

/* ---- from one request to the next ------------------------------------------------------------ */

void serial_next(struct serial_conn *conn) {
    struct net_shard *shard = conn->net.shard;
    struct net_call *call = conn->call;
    conn->call = NULL;
    if (call) {
        net_call_end(call);
    }
    if (conn->net.last || net_shard_is_draining(shard)) {
        serial_set_state(conn, SERIAL_ENDED);
        net_conn_end(&conn->net, conn->net.clean_end);
        return;
    }
    serial_set_state(conn, SERIAL_IDLE);
    if (conn->net.stash && !conn->net.consuming) {
        net_shard_make_ready(shard, &conn->net);
    }
}

void serial_answered(struct serial_conn *conn) {
    if (conn->state == SERIAL_REPLY_SKIP) {
        serial_set_state(conn, SERIAL_SKIP);
    } else {
        serial_next(conn);
    }
}

void serial_send(struct serial_conn *conn, struct net_outgoing *out) {
    bool sent = net_conn_may_gather(&conn->net) && net_conn_gather(&conn->net, out);
    if (!sent && !serial_is_closed(conn)) {
        sent = net_call_send(conn->call, out);
    }
    if (sent) {
        serial_on_written(conn->call);
    }
}

void serial_on_written(struct net_call *call) {
    net_call_release(call);
    serial_answered((struct serial_conn *)call->conn);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

enum status serial_body_add(struct serial_conn *conn, struct str *data, struct error *err) {
    struct net_call *call = conn->call;
    uint64_t left = call->body.left;
    size_t n = data->len < left ? data->len : (size_t)left;
    struct str piece = str_make(data->ptr, n);
    *data = str_make(data->ptr + n, data->len - n);
    conn->net.ahead = data->len;
    call->received += n;
    enum status st = body_add(&call->body, piece, err);
    conn->skip_left = call->body.left;
    return st;
}

enum status serial_body_advance(struct serial_conn *conn, size_t n_bytes, struct error *err) {
    struct net_call *call = conn->call;
    call->received += n_bytes;
    enum status st = body_advance(&call->body, n_bytes, err);
    conn->skip_left = call->body.left;
    return st;
}

/* ---- bodies that nobody wants ---------------------------------------------------------------- */

uint64_t serial_most_skipped(const struct serial_conn *conn) {
    uint64_t most = conn->net.shard->server->limits.discard_bytes;
    return most < SERIAL_SKIP_BYTES ? most : SERIAL_SKIP_BYTES;
}

void serial_skip_end(struct serial_conn *conn) {
    if (conn->state == SERIAL_REPLY_SKIP) {
        serial_set_state(conn, SERIAL_REPLY);
    } else {
        serial_next(conn);
    }
}

void serial_skip(struct serial_conn *conn, struct str *data) {
    size_t n = data->len < conn->skip_left ? data->len : (size_t)conn->skip_left;
    *data = str_make(data->ptr + n, data->len - n);
    conn->skip_left -= n;
    conn->net.ahead = data->len;
    if (conn->skip_left == 0) {
        serial_skip_end(conn);
    }
}

/* ---- hooks ----------------------------------------------------------------------------------- */

char *serial_room(struct net_conn *net_conn, size_t *n_bytes) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    if (conn->state != SERIAL_BODY || !conn->call->body.in_place) {
        return NULL;
    }
    return body_room(&conn->call->body, n_bytes);
}

bool serial_on_eof(struct net_conn *net_conn) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    switch ((enum serial_state)conn->state) {
    case SERIAL_WAIT:
    case SERIAL_REPLY:
        net_conn->last = true; /* the request is whole: it gets its answer */
        return true;
    case SERIAL_REPLY_SKIP:
        net_conn->last = true;
        serial_set_state(conn, SERIAL_REPLY);
        return true;
    case SERIAL_IDLE:
    case SERIAL_HEAD:
    case SERIAL_BODY:
    case SERIAL_SKIP:
    case SERIAL_ENDED:
    case SERIAL_STATES:
        break;
    }
    return false;
}

void serial_on_close(struct net_conn *net_conn) {
    struct serial_conn *conn = (struct serial_conn *)net_conn;
    struct net_call *call = conn->call;
    bool whole = conn->state == SERIAL_WAIT;
    serial_set_state(conn, SERIAL_ENDED);
    conn->call = NULL;
    if (call) {
        net_call_detach(call, whole);
    }
}

bool serial_wants_to_read(const struct net_conn *net_conn) {
    const struct serial_conn *conn = (const struct serial_conn *)net_conn;
    bool drops = net_conn->last && conn->state == SERIAL_REPLY;
    return !drops || net_conn->discarded <= net_conn->shard->server->limits.discard_bytes;
}

enum net_timeout serial_timeout_of(const struct net_conn *net_conn, bool *keeps) {
    const struct serial_conn *conn = (const struct serial_conn *)net_conn;
    /* A head has one time for all of it, what is skipped too, and a write goes on only when the
     * peer takes something. */
    *keeps = true;
    switch ((enum serial_state)conn->state) {
    case SERIAL_HEAD:
        return NET_TIMEOUT_HEAD;
    case SERIAL_SKIP:
        return NET_TIMEOUT_BODY;
    case SERIAL_REPLY:
    case SERIAL_REPLY_SKIP:
        /* While the handler has nothing to send, the peer has nothing to take. */
        return conn->call->streams && !conn->call->writing ? NET_TIMEOUT_NONE : NET_TIMEOUT_WRITE;
    case SERIAL_IDLE:
    case SERIAL_BODY:
        *keeps = false;
        return conn->state == SERIAL_IDLE ? NET_TIMEOUT_IDLE : NET_TIMEOUT_BODY;
    case SERIAL_WAIT:
    case SERIAL_ENDED:
    case SERIAL_STATES:
        break;
    }
    return NET_TIMEOUT_NONE;
}

bool serial_is_idle(const struct net_conn *conn) {
    return ((const struct serial_conn *)conn)->state == SERIAL_IDLE;
}
