/* What a connection of each protocol is doing, in words, for net/server/report.h. Runs on the
 * connection's worker, between two events. */
#include "net/server/grpc/conn.h"
#include "net/server/http/conn.h"

enum { NAME_BYTES = 80, MAX_STREAMS = 8 };

/* What a peer sent, cut and made safe to print. */
static void add_name(struct buf *out, struct str name) {
    size_t n = name.len < NAME_BYTES ? name.len : NAME_BYTES;
    for (size_t i = 0; i < n; i++) {
        char c = name.ptr[i];
        buf_add_char(out, c >= 0x20 && c < 0x7f ? c : '?');
    }
    if (n < name.len) {
        buf_add_str(out, STR("..."));
    }
}

void request_response_describe(const struct net_conn *net_conn, struct buf *out) {
    static const char *const states[REQUEST_RESPONSE_STATES] = {
        [REQUEST_RESPONSE_IDLE] = "rests",
        [REQUEST_RESPONSE_HEAD] = "sends a head",
        [REQUEST_RESPONSE_BODY] = "sends a body",
        [REQUEST_RESPONSE_WAIT] = "waits for its answer",
        [REQUEST_RESPONSE_REPLY] = "takes its answer",
        [REQUEST_RESPONSE_REPLY_SKIP] = "takes its answer, while the rest of its body is dropped",
        [REQUEST_RESPONSE_SKIP] = "sends the rest of a body, which is dropped",
        [REQUEST_RESPONSE_ENDED] = "is over",
    };
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    buf_add_str(out, str_of(states[conn->state]));
    if (conn->call && conn->call->received > 0) {
        buf_printf(out, ", %llu bytes of body came", (unsigned long long)conn->call->received);
    }
}

void http_describe(const struct net_conn *net_conn, struct buf *out) {
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    const struct http_call *call = http_conn_call(conn);
    request_response_describe(net_conn, out);
    if (call && call->exchange.head.method.len > 0) {
        buf_add_str(out, STR(" ("));
        add_name(out, call->exchange.head.method);
        buf_add_char(out, ' ');
        add_name(out, call->exchange.head.path);
        buf_add_char(out, ')');
    }
}

/* In the words of its method, if that has some: what a peer sent is among them. */
static void describe_call(const struct grpc_call *call, struct buf *out) {
    size_t before = out->len;
    if (call->user && call->method && call->method->describe) {
        buf_add_str(out, STR(": "));
        call->method->describe(call, out);
    }
    for (size_t i = before; i < out->len && !out->failed; i++) {
        if ((unsigned char)out->data[i] < 0x20 || out->data[i] == 0x7f) {
            out->data[i] = '?';
        }
    }
}

static void describe_stream(const struct grpc_stream *stream, struct buf *out) {
    static const char *const answers[] = {
        [GRPC_RESPONSE_NONE] = "waits for its answer",
        [GRPC_RESPONSE_OPEN] = "takes answers",
        [GRPC_RESPONSE_ENDING] = "takes the end of its answer",
        [GRPC_RESPONSE_SENT] = "is answered",
    };
    buf_printf(out, "; call %d ", (int)stream->id);
    add_name(out, stream->path);
    buf_printf(out, " %s", answers[stream->response_state]);
    describe_call(&stream->call, out);
}

void grpc_describe(const struct net_conn *net_conn, struct buf *out) {
    const struct grpc_session *session = &((const struct grpc_conn *)net_conn)->session;
    size_t n = 0;
    buf_printf(out, "has %zu calls", session->n_open);
    for (const struct grpc_stream *stream = session->streams; stream && n < MAX_STREAMS;
         stream = stream->next) {
        if (!stream->closed) {
            describe_stream(stream, out);
            n++;
        }
    }
    if (n < session->n_open) {
        buf_printf(out, "; and %zu more", session->n_open - n);
    }
}
