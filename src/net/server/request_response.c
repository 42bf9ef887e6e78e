/* From one request of a connection to the next: states, bodies, skipped bodies, and the hooks for
 * struct net_protocol. */
#include "net/server/request_response.h"

#include <assert.h>

#include "core/base/transition.h"

#define TO(state) STATE_SET(REQUEST_RESPONSE_##state)

void request_response_set_state(struct request_response_conn *conn,
                                enum request_response_state state) {
    static const uint32_t NEXT[] = {
        [REQUEST_RESPONSE_IDLE] = TO(HEAD) | TO(ENDED),
        [REQUEST_RESPONSE_HEAD] = TO(BODY) | TO(WAIT) | TO(REPLY) | TO(REPLY_SKIP) | TO(ENDED),
        [REQUEST_RESPONSE_BODY] = TO(WAIT) | TO(REPLY) | TO(REPLY_SKIP) | TO(ENDED),
        [REQUEST_RESPONSE_WAIT] = TO(REPLY) | TO(ENDED),
        [REQUEST_RESPONSE_REPLY] = TO(IDLE) | TO(ENDED),
        [REQUEST_RESPONSE_REPLY_SKIP] = TO(REPLY) | TO(SKIP) | TO(ENDED),
        [REQUEST_RESPONSE_SKIP] = TO(IDLE) | TO(ENDED),
        [REQUEST_RESPONSE_ENDED] = TO(ENDED),
    };
    assert(transition_is_legal(NEXT, conn->state, state));
    conn->state = (uint8_t)state;
}

/* ---- from one request to the next ------------------------------------------------------------ */

void request_response_next_request(struct request_response_conn *conn) {
    struct server_worker *server_worker = conn->net.server_worker;
    struct net_call *call = conn->call;
    conn->call = NULL;
    if (call) {
        net_call_finish(call);
    }
    if (conn->net.close_after_reply || server_worker_is_draining(server_worker)) {
        request_response_set_state(conn, REQUEST_RESPONSE_ENDED);
        net_conn_close_gracefully(&conn->net, conn->net.skip_linger);
        return;
    }
    request_response_set_state(conn, REQUEST_RESPONSE_IDLE);
    if (conn->net.pending_input && !conn->net.consuming) {
        server_worker_schedule_resume(server_worker, &conn->net);
    }
}

void request_response_on_reply_sent(struct request_response_conn *conn) {
    if (conn->state == REQUEST_RESPONSE_REPLY_SKIP) {
        request_response_set_state(conn, REQUEST_RESPONSE_SKIP);
    } else {
        request_response_next_request(conn);
    }
}

void request_response_send(struct request_response_conn *conn, struct net_outgoing *out) {
    bool sent = net_conn_may_coalesce(&conn->net) && net_conn_coalesce(&conn->net, out);
    if (!sent && !request_response_is_closed(conn)) {
        sent = net_call_send(conn->call, out);
    }
    if (sent) {
        request_response_on_written(conn->call);
    }
}

void request_response_on_written(struct net_call *call) {
    net_call_release_reply(call);
    request_response_on_reply_sent((struct request_response_conn *)call->conn);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

enum status request_response_add_body(struct request_response_conn *conn, struct str *data,
                                      struct error *err) {
    struct net_call *call = conn->call;
    uint64_t left = call->body.left;
    size_t n = data->len < left ? data->len : (size_t)left;
    struct str piece = str_make(data->ptr, n);
    *data = str_make(data->ptr + n, data->len - n);
    conn->net.n_pipelined_bytes = data->len;
    call->received += n;
    enum status st = body_add(&call->body, piece, err);
    conn->skip_left = call->body.left;
    return st;
}

enum status request_response_advance_body(struct request_response_conn *conn, size_t n_bytes,
                                          struct error *err) {
    struct net_call *call = conn->call;
    call->received += n_bytes;
    enum status st = body_advance(&call->body, n_bytes, err);
    conn->skip_left = call->body.left;
    return st;
}

/* ---- skipped bodies -------------------------------------------------------------------------- */

uint64_t request_response_max_skipped(const struct request_response_conn *conn) {
    uint64_t most = conn->net.server_worker->server->limits.discard_size;
    return most < REQUEST_RESPONSE_SKIP_MAX_BYTES ? most : REQUEST_RESPONSE_SKIP_MAX_BYTES;
}

void request_response_finish_skip(struct request_response_conn *conn) {
    if (conn->state == REQUEST_RESPONSE_REPLY_SKIP) {
        request_response_set_state(conn, REQUEST_RESPONSE_REPLY);
    } else {
        request_response_next_request(conn);
    }
}

void request_response_skip_body(struct request_response_conn *conn, struct str *data) {
    size_t n = data->len < conn->skip_left ? data->len : (size_t)conn->skip_left;
    *data = str_make(data->ptr + n, data->len - n);
    conn->skip_left -= n;
    conn->net.n_pipelined_bytes = data->len;
    if (conn->skip_left == 0) {
        request_response_finish_skip(conn);
    }
}

/* ---- hooks ----------------------------------------------------------------------------------- */

char *request_response_read_buffer(struct net_conn *net_conn, size_t *n_bytes) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    if (conn->state != REQUEST_RESPONSE_BODY || !conn->call->body.in_place) {
        return NULL;
    }
    return body_read_buffer(&conn->call->body, n_bytes);
}

/* Returns: whether the handler has not ended the response: one that is cut short must not look
 * complete. */
static bool is_streaming(const struct request_response_conn *conn) {
    return conn->call->is_streaming && !conn->call->replied;
}

bool request_response_on_eof(struct net_conn *net_conn) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    switch ((enum request_response_state)conn->state) {
    case REQUEST_RESPONSE_WAIT:
        net_conn->close_after_reply = true;
        if (net_conn->protocol->on_call_half_closed) {
            net_conn->protocol->on_call_half_closed(conn->call); /* may reply */
        }
        return true;
    case REQUEST_RESPONSE_REPLY:
        net_conn->close_after_reply = true; /* sends the rest of the response first */
        return !is_streaming(conn);
    case REQUEST_RESPONSE_REPLY_SKIP:
        net_conn->close_after_reply = true;
        request_response_set_state(conn, REQUEST_RESPONSE_REPLY);
        return true;
    case REQUEST_RESPONSE_IDLE:
    case REQUEST_RESPONSE_HEAD:
    case REQUEST_RESPONSE_BODY:
    case REQUEST_RESPONSE_SKIP:
    case REQUEST_RESPONSE_ENDED:
    case REQUEST_RESPONSE_STATES:
        break;
    }
    return false;
}

void request_response_on_close(struct net_conn *net_conn) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    struct net_call *call = conn->call;
    bool whole = conn->state == REQUEST_RESPONSE_WAIT;
    request_response_set_state(conn, REQUEST_RESPONSE_ENDED);
    conn->call = NULL;
    if (call) {
        net_call_on_conn_closed(call, whole);
    }
}

bool request_response_wants_to_read(const struct net_conn *net_conn) {
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    if (conn->state == REQUEST_RESPONSE_IDLE && net_conn_is_sending(net_conn)) {
        return false; /* an end of file would close it before the response is sent */
    }
    bool drops = net_conn->close_after_reply && conn->state == REQUEST_RESPONSE_REPLY;
    return !drops || net_conn->discarded <= net_conn->server_worker->server->limits.discard_size;
}

/* The server waits for the handler. While it reads, it notices a client that closes. */
static enum net_timeout check_timeout(const struct net_conn *net_conn) {
    return net_conn->pending_input && !net_conn->eof ? NET_TIMEOUT_CLIENT : NET_TIMEOUT_NONE;
}

enum net_timeout request_response_timeout_of(const struct net_conn *net_conn, bool *keep_running) {
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    /* One timeout for a whole head and for a skipped body; the write timeout restarts only when the
     * peer takes bytes. */
    *keep_running = true;
    switch ((enum request_response_state)conn->state) {
    case REQUEST_RESPONSE_HEAD:
        return NET_TIMEOUT_HEAD;
    case REQUEST_RESPONSE_SKIP:
        return NET_TIMEOUT_BODY;
    case REQUEST_RESPONSE_REPLY:
    case REQUEST_RESPONSE_REPLY_SKIP:
        /* While the handler has nothing to send, the peer cannot be slow. */
        return conn->call->is_streaming && !conn->call->writing ? check_timeout(net_conn)
                                                                : NET_TIMEOUT_WRITE;
    case REQUEST_RESPONSE_IDLE:
    case REQUEST_RESPONSE_BODY:
        *keep_running = false;
        return conn->state == REQUEST_RESPONSE_IDLE ? NET_TIMEOUT_IDLE : NET_TIMEOUT_BODY;
    case REQUEST_RESPONSE_WAIT:
        return net_conn->eof ? NET_TIMEOUT_HALF_CLOSED : check_timeout(net_conn);
    case REQUEST_RESPONSE_ENDED:
    case REQUEST_RESPONSE_STATES:
        break;
    }
    return NET_TIMEOUT_NONE;
}

bool request_response_is_idle(const struct net_conn *conn) {
    return ((const struct request_response_conn *)conn)->state == REQUEST_RESPONSE_IDLE;
}

uint64_t request_response_body_bytes(const struct net_conn *conn) {
    const struct net_call *call = ((const struct request_response_conn *)conn)->call;
    return call ? body_reserved_bytes(&call->body) + call->n_head_reserved : 0;
}

void request_response_describe(const struct net_conn *net_conn, struct buf *out) {
    static const char *const states[REQUEST_RESPONSE_STATES] = {
        [REQUEST_RESPONSE_IDLE] = "idle",
        [REQUEST_RESPONSE_HEAD] = "reading head",
        [REQUEST_RESPONSE_BODY] = "reading body",
        [REQUEST_RESPONSE_WAIT] = "waiting for the response",
        [REQUEST_RESPONSE_REPLY] = "writing response",
        [REQUEST_RESPONSE_REPLY_SKIP] = "writing response, dropping the rest of the body",
        [REQUEST_RESPONSE_SKIP] = "dropping the rest of the body",
        [REQUEST_RESPONSE_ENDED] = "closed",
    };
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    buf_add_str(out, str_of(states[conn->state]));
    if (conn->call && conn->call->received > 0) {
        buf_printf(out, ", %llu bytes of body received", (unsigned long long)conn->call->received);
    }
    if (net_conn->eof) {
        buf_add_str(out, STR(", half-closed by the client"));
    }
}
