/* Packets on their way out: answers from where their bytes lie; pings and errors, which are a
 * header and no more, without anything allocated for them. */
#include <assert.h>

#include "core/base/metric/metric.h"
#include "net/server/mip/conn.h"

enum { STACK_BUFS = 16 }; /* more than that are listed in the arena */

/* A packet is answered now. */
static void count_request(void) {
    metric_add(METRIC_REQUESTS_TOTAL, 1);
    metric_add(METRIC_MIP_REQUESTS_TOTAL, 1);
}

/* Sends a packet that is all header; then the connection goes on, or ends. */
static void send_header(struct request_response_conn *conn, const struct mip_header *header) {
    char bytes[MIP_HEADER_BYTES];
    mip_header_encode(header, bytes);
    net_conn_send_small(&conn->net, str_make(bytes, sizeof(bytes)));
    if (!request_response_is_closed(conn)) {
        request_response_on_reply_sent(conn);
    }
}

static void send_error(struct request_response_conn *conn, const struct error *err) {
    mip_log_error(&conn->net, err);
    send_header(conn, &(struct mip_header){.version = MIP_VERSION,
                                           .kind = MIP_ERROR,
                                           .subtype = (uint8_t)status_mip(err->status)});
}

void mip_reply_ping(struct request_response_conn *conn) {
    count_request();
    request_response_set_state(conn, REQUEST_RESPONSE_REPLY);
    send_header(conn, &(struct mip_header){
                          .version = MIP_VERSION, .kind = MIP_PING, .subtype = MIP_RESPONSE});
}

void mip_refuse(struct request_response_conn *conn, uint64_t left, const struct error *err) {
    /* In another version the size may be anywhere. */
    bool known = err->status != ST_BAD_VERSION;
    count_request();
    conn->net.close_after_reply =
        conn->net.close_after_reply || !known || left > request_response_max_skipped(conn);
    conn->skip_left = left;
    request_response_set_state(conn, conn->net.close_after_reply || left == 0
                                         ? REQUEST_RESPONSE_REPLY
                                         : REQUEST_RESPONSE_REPLY_SKIP);
    send_error(conn, err);
}

/* ---- replies of the handler ------------------------------------------------------------------ */

/* Lists the pieces, in `arena` when they are many. Returns: false when out of memory. */
static bool outgoing_make(struct arena *arena, const struct mip_answer *answer,
                          struct net_outgoing *out, uv_buf_t stack[STACK_BUFS]) {
    *out = (struct net_outgoing){.bufs = stack};
    if (answer->n_pieces > STACK_BUFS) {
        out->bufs = arena_calloc(arena, answer->n_pieces, sizeof(*out->bufs));
    }
    for (size_t i = 0; out->bufs && i < answer->n_pieces; i++) {
        net_outgoing_add(out, answer->pieces[i].data, answer->pieces[i].n_bytes);
    }
    out->n_body = out->n_bytes;
    return out->bufs != NULL;
}

/* Returns: false when the peer is gone, and the call has ended. */
static bool reply_begin(struct net_call *call) {
    assert(!call->replied);
    call->replied = true;
    if (!call->conn) {
        net_call_finish(call);
        return false;
    }
    count_request();
    request_response_set_state((struct request_response_conn *)call->conn, REQUEST_RESPONSE_REPLY);
    return true;
}

static void reply_end(struct net_conn *conn) {
    if (!conn->consuming) {
        net_conn_update_io(conn);
    }
}

static struct net_call *call_of(struct mip_exchange *exchange) {
    return (struct net_call *)(void *)((char *)exchange - offsetof(struct mip_call, exchange));
}

void mip_reply(struct mip_exchange *exchange, const struct mip_answer *answer) {
    struct net_call *call = call_of(exchange);
    struct net_conn *conn = call->conn;
    uv_buf_t stack[STACK_BUFS];
    struct net_outgoing out;
    call->release = answer->release;
    call->user = answer->user;
    if (!reply_begin(call)) {
        return;
    }
    if (outgoing_make(call->arena, answer, &out, stack) ||
        (net_call_reply_arena(call) && outgoing_make(call->reply_arena, answer, &out, stack))) {
        assert(out.n_bytes >= MIP_HEADER_BYTES);
        request_response_send((struct request_response_conn *)conn, &out);
    } else {
        net_conn_close(conn);
    }
    reply_end(conn);
}

void mip_reply_error(struct mip_exchange *exchange, const struct error *err) {
    struct net_call *call = call_of(exchange);
    struct net_conn *conn = call->conn;
    if (reply_begin(call)) {
        send_error((struct request_response_conn *)conn, err);
        reply_end(conn);
    }
}
