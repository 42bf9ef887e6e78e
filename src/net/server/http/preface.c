/* The first bytes of a connection to a port of HTTP/1.1 and gRPC: those with HTTP/2's preface (RFC
 * 9113, 3.4: prior knowledge, or ALPN's h2) move to the gRPC server, which passes the requests that
 * are not gRPC back (h2.c); the others go on as HTTP/1.1.
 * Bytes of the preface are known, so those received so far need no buffer. */
#include "net/server/http/conn.h"
#include "net/transport/h2_preface.h"

static void go_on_as_http1(struct net_conn *net_conn) {
    struct http_conn *conn = (struct http_conn *)net_conn;
    struct str received = h2_preface_bytes(conn->n_preface);
    conn->n_preface = 0;
    net_conn->protocol = &http_protocol;
    while (received.len > 0 && net_conn->phase == NET_OPEN) {
        (void)http_protocol.on_bytes(net_conn, &received); /* no response is pending */
    }
}

static void move_to_h2(struct net_conn *conn, struct net_server *h2) {
    struct str preface = h2_preface_bytes(H2_PREFACE_BYTES);
    if (net_conn_move(conn, h2)) {
        (void)conn->protocol->on_bytes(conn, &preface);
    }
}

/* Bytes that are not part of a preface are left for the next call, which is of another protocol. */
static bool on_bytes(struct net_conn *net_conn, struct str *data) {
    struct http_conn *conn = (struct http_conn *)net_conn;
    size_t n = h2_preface_match(conn->n_preface, *data);
    bool is_whole = conn->n_preface + n == H2_PREFACE_BYTES;
    if (n < data->len && !is_whole) {
        go_on_as_http1(net_conn);
        return true;
    }
    conn->n_preface += (uint8_t)n;
    *data = str_make(data->ptr + n, data->len - n);
    if (is_whole) {
        move_to_h2(net_conn, grpc_server_net(http_server_of(net_conn->server_worker)->h2));
    }
    return true;
}

static void on_refused(struct net_conn *conn, const struct error *err) {
    conn->protocol = &http_protocol;
    http_protocol.on_refused(conn, err);
}

static bool is_idle(const struct net_conn *conn) {
    return ((const struct http_conn *)conn)->n_preface == 0;
}

static enum net_timeout timeout_of(const struct net_conn *conn, bool *keep_running) {
    *keep_running = !is_idle(conn); /* one timeout for the whole preface */
    return is_idle(conn) ? NET_TIMEOUT_IDLE : NET_TIMEOUT_HEAD;
}

/* An incomplete preface is an incomplete request line, too. */
static void on_timeout(struct net_conn *conn, enum net_timeout timeout) {
    go_on_as_http1(conn);
    if (((const struct request_response_conn *)conn)->state == REQUEST_RESPONSE_HEAD) {
        http_protocol.on_timeout(conn, timeout);
    }
}

static void describe(const struct net_conn *conn, struct buf *out) {
    buf_add_str(out, is_idle(conn) ? STR("idle") : STR("reading the preface of HTTP/2"));
}

void http_detecting_init(struct http_server *server) {
    server->detecting = http_protocol;
    /* A client that knows both gets HTTP/1.1, whose bodies are read into place without a copy;
     * those of gRPC offer h2 alone. */
    server->detecting.alpn = "\x08http/1.1\x02h2\x08http/1.0";
    server->detecting.on_refused = on_refused;
    server->detecting.on_bytes = on_bytes;
    server->detecting.is_idle = is_idle;
    server->detecting.timeout_of = timeout_of;
    server->detecting.on_timeout = on_timeout;
    server->detecting.describe = describe;
}
