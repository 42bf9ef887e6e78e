/* Responses: the head from the exchange's arena and the pieces of the body in place. The fate of
 * the connection, and of a body that is still arriving, is decided here. */
#include <assert.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "net/server/http/conn.h"

enum { STACK_BUFS = 16 }; /* more are allocated in the arena */

void http_send_continue(struct request_response_conn *conn) {
    static const char CONTINUE[] = "HTTP/1.1 100 Continue\r\n\r\n";
    char text[sizeof(CONTINUE)];
    memcpy(text, CONTINUE, sizeof(CONTINUE));
    uv_buf_t buf = {.base = text, .len = sizeof(CONTINUE) - 1};
    net_conn_flush(&conn->net);
    if (request_response_is_closed(conn)) {
        return;
    }
    /* If the socket takes nothing, earlier responses are queued before it; the client does not wait
     * for 100 Continue indefinitely (RFC 9110, 10.1.1). */
    ssize_t n = net_conn_try_write(&conn->net, &buf, 1);
    if (n != 0 && n != (ssize_t)buf.len) {
        net_conn_close(&conn->net);
    }
}

struct str http_reply_common_fields(const struct server_worker *server_worker) {
    const struct http_server *server = http_server_of(server_worker);
    struct http_common_fields *common = &server->common_fields[server_worker_index(server_worker)];
    time_t now = time(NULL);
    if (now != common->second || common->view.len == 0) {
        common->second = now;
        common->view = http1_common_fields_print(common->text, server->server_name, now);
    }
    return common->view;
}

/* ---- replies --------------------------------------------------------------------------------- */

void http_reply_decide_keep_alive(struct request_response_conn *conn, struct http_call *call,
                                  bool close) {
    const struct http_head *head = &call->exchange.head;
    struct net_conn *net_conn = &conn->net;
    bool draining = server_worker_is_draining(net_conn->server_worker);
    bool whole = conn->state == REQUEST_RESPONSE_WAIT;
    bool skips = conn->state == REQUEST_RESPONSE_BODY && !net_conn->close_after_reply && !close &&
                 head->keep_alive && !draining && http_receive_may_skip(call);
    net_conn->close_after_reply =
        net_conn->close_after_reply || close || draining || !head->keep_alive || !(whole || skips);
    /* A client that announced `close`, and whose request is complete, sends nothing more. */
    net_conn->skip_linger =
        whole && !head->keep_alive && net_conn->n_pipelined_bytes == 0 && !net_conn->pending_input;
    request_response_set_state(conn, skips ? REQUEST_RESPONSE_REPLY_SKIP : REQUEST_RESPONSE_REPLY);
    if (!whole) {
        net_call_free_body(&call->base);
    }
}

/* Lists head and pieces, in `arena`. Returns: false when out of memory. */
static bool outgoing_make(struct http_call *call, struct arena *arena,
                          const struct http_reply *reply, struct net_outgoing *out,
                          uv_buf_t stack[STACK_BUFS]) {
    struct http_exchange *exchange = &call->exchange;
    struct http1_response_head head = {
        .status = reply->status,
        .common = http_reply_common_fields(call->base.server_worker),
        .content_type = reply->content_type,
        .fields = reply->fields,
        .n_fields = reply->n_fields,
        .allow_origin = exchange->allow_origin,
        .close = call->base.conn->close_after_reply,
        .keep_alive = exchange->head.http10,
    };
    for (size_t i = 0; i < reply->n_pieces; i++) {
        head.content_length += reply->pieces[i].n_bytes;
    }
    struct buf text;
    buf_init(&text, arena, 0);
    http1_response_head_print(&text, &head);
    *out = (struct net_outgoing){.bufs = stack};
    if (reply->n_pieces >= STACK_BUFS) {
        out->bufs = arena_calloc(arena, reply->n_pieces + 1, sizeof(*out->bufs));
    }
    if (text.failed || !out->bufs) {
        return false;
    }
    net_outgoing_add(out, text.data, text.len);
    for (size_t i = 0; i < reply->n_pieces && !exchange->suppress_body; i++) {
        net_outgoing_add(out, reply->pieces[i].data, reply->pieces[i].n_bytes);
    }
    out->n_body = out->n_bytes - text.len;
    return true;
}

void http1_reply(struct http_exchange *exchange, const struct http_reply *reply) {
    struct http_call *call = http_call_of(exchange);
    struct request_response_conn *conn = (struct request_response_conn *)call->base.conn;
    assert(!call->base.replied);
    call->base.replied = true;
    call->base.release = reply->release;
    call->base.user = reply->user;
    if (!conn) {
        net_call_finish(&call->base);
        return;
    }
    metric_add(METRIC_REQUESTS_TOTAL, 1);
    http_reply_decide_keep_alive(conn, call, reply->close);
    uv_buf_t stack[STACK_BUFS];
    struct net_outgoing out;
    if (outgoing_make(call, exchange->arena, reply, &out, stack) ||
        (net_call_reply_arena(&call->base) &&
         outgoing_make(call, call->base.reply_arena, reply, &out, stack))) {
        request_response_send(conn, &out);
    } else {
        net_conn_close(&conn->net);
    }
    if (!conn->net.consuming) {
        net_conn_update_io(&conn->net);
    }
}
