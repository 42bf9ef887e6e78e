/* Bytes to the peer: answers from where they lie, in one writev where the socket takes them. Small
 * answers of pipelined requests are gathered, so that many leave in one write. It refuses to copy
 * what is not small. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "net/server/call.h"
#include "net/server/tls/conn.h"

enum { MAX_TRIES = 8 }; /* at once; then other connections have their turn */

/* ---- lists of buffers ------------------------------------------------------------------------ */

/* Drops the first `n_bytes` of the list. */
static void outgoing_cut(struct net_outgoing *out, size_t n_bytes) {
    out->n_bytes -= n_bytes;
    while (out->n > 0 && n_bytes >= out->bufs->len) {
        n_bytes -= out->bufs->len;
        out->bufs++;
        out->n--;
    }
    if (n_bytes > 0) {
        out->bufs->base += n_bytes;
        out->bufs->len -= n_bytes;
    }
}

/* ---- the socket, or TLS above it ------------------------------------------------------------- */

/* Of what travels; TLS counts its records itself. */
static void count_sent(const struct net_conn *conn, size_t n_bytes) {
    if (!conn->tls) {
        metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)n_bytes);
    }
}

ssize_t net_conn_try_write(struct net_conn *conn, uv_buf_t *bufs, unsigned n) {
    if (conn->tls) {
        return net_tls_try_write(conn, bufs, n);
    }
    int rc = uv_try_write(&conn->uv.stream, bufs, n);
    if (rc > 0) {
        metric_add(METRIC_SENT_BYTES_TOTAL, rc);
    }
    return rc == UV_EAGAIN ? 0 : rc;
}

/* Writes behind what is on its way. Returns: 0, or libuv's error; then `done` is not called. */
static int queue_write(struct net_conn *conn, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                       uv_write_cb done) {
    return conn->tls ? net_tls_queue_write(conn, write, bufs, n, done)
                     : uv_write(write, &conn->uv.stream, bufs, n, done);
}

size_t net_conn_unsent_bytes(const struct net_conn *conn) {
    size_t n_waiting = conn->tls ? conn->tls->n_waiting_bytes : 0;
    return uv_stream_get_write_queue_size(&conn->uv.stream) + n_waiting;
}

/* ---- gathered answers ------------------------------------------------------------------------ */

/* Small answers that the socket did not take at once. */
struct flush {
    uv_write_t write;
    struct net_conn *conn;
    size_t n_bytes;
    char data[];
};

static void on_flushed(uv_write_t *write, int status) {
    struct flush *flush = (struct flush *)write;
    struct net_conn *conn = flush->conn;
    size_t n_bytes = flush->n_bytes;
    free(flush);
    conn->n_flushing--;
    if (status < 0) {
        net_conn_close(conn);
        return;
    }
    count_sent(conn, n_bytes);
    if (!net_conn_is_sending(conn) && conn->phase == NET_LINGER) {
        net_conn_half_close(conn);
    }
    if (conn->pending_input) {
        server_worker_schedule_resume(conn->server_worker, conn);
    }
    net_conn_update_io(conn);
}

static void queue_flush(struct net_conn *conn, const char *data, size_t n_bytes) {
    struct flush *flush = malloc(sizeof(*flush) + n_bytes);
    if (!flush) {
        net_conn_close(conn);
        return;
    }
    flush->conn = conn;
    flush->n_bytes = n_bytes;
    memcpy(flush->data, data, n_bytes);
    uv_buf_t buf = {.base = flush->data, .len = n_bytes};
    conn->n_flushing++;
    if (queue_write(conn, &flush->write, &buf, 1, on_flushed) != 0) {
        conn->n_flushing--;
        free(flush);
        net_conn_close(conn);
    }
}

/* At once, or from a copy. */
static void write_small(struct net_conn *conn, const char *data, size_t n_bytes) {
    /* libuv's type has no const; nobody writes there. */
    uv_buf_t buf = {.base = (char *)(uintptr_t)data, .len = n_bytes};
    ssize_t n = net_conn_try_write(conn, &buf, 1);
    if (n < 0) {
        net_conn_close(conn);
    } else if ((size_t)n < n_bytes) {
        queue_flush(conn, data + n, n_bytes - (size_t)n);
    }
}

void server_worker_flush(struct server_worker *server_worker) {
    struct net_conn *conn = server_worker->out_conn;
    size_t len = server_worker->out_len;
    server_worker->out_len = 0;
    server_worker->out_conn = NULL;
    write_small(conn, server_worker->out, len);
}

bool net_conn_coalesce(struct net_conn *conn, const struct net_outgoing *out) {
    struct server_worker *server_worker = conn->server_worker;
    if (out->n_bytes > NET_COALESCE_MAX_BYTES) {
        return false;
    }
    if (server_worker->out_len + out->n_bytes > NET_COALESCE_BUFFER_BYTES) {
        net_conn_flush(conn);
    }
    if (conn->phase == NET_CLOSED || conn->n_flushing > 0) {
        return false;
    }
    assert(!server_worker->out_conn || server_worker->out_conn == conn);
    server_worker->out_conn = conn;
    for (unsigned i = 0; i < out->n; i++) {
        memcpy(server_worker->out + server_worker->out_len, out->bufs[i].base, out->bufs[i].len);
        server_worker->out_len += out->bufs[i].len;
    }
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)out->n_body);
    return true;
}

void net_conn_send_small(struct net_conn *conn, struct str data) {
    uv_buf_t buf;
    struct net_outgoing out = {.bufs = &buf};
    net_outgoing_add(&out, data.ptr, data.len);
    if (net_conn_may_coalesce(conn) && net_conn_coalesce(conn, &out)) {
        return;
    }
    if (conn->phase != NET_CLOSED) {
        net_conn_flush(conn);
    }
    if (conn->phase != NET_CLOSED) {
        write_small(conn, data.ptr, data.len);
    }
}

/* ---- from where the bytes lie ---------------------------------------------------------------- */

/* What the socket takes now; what is large often leaves in two or three pieces while the peer
 * reads.
 * Returns: a negative error that ends the connection, or 0. */
static int send_now(struct net_conn *conn, struct net_outgoing *out) {
    ssize_t n;
    unsigned tries = 0;
    do {
        n = net_conn_try_write(conn, out->bufs, out->n);
        outgoing_cut(out, n > 0 ? (size_t)n : 0);
    } while (n > 0 && out->n_bytes > 0 && ++tries < MAX_TRIES);
    return n < 0 ? (int)n : 0;
}

static void on_sent(uv_write_t *uv, int status) {
    struct net_write *write = (struct net_write *)uv;
    struct net_conn *conn = write->conn;
    if (status == 0) {
        count_sent(conn, write->n_bytes);
    }
    conn->protocol->on_sent(conn);
    if (status < 0) {
        net_conn_close(conn);
    }
    net_conn_update_io(conn);
}

bool net_conn_send(struct net_conn *conn, struct net_outgoing *out, struct net_write *write) {
    assert(conn->phase == NET_OPEN);
    int rc = send_now(conn, out);
    if (rc == 0 && out->n_bytes == 0) {
        return true;
    }
    if (rc == 0) {
        write->conn = conn;
        write->n_bytes = out->n_bytes;
        rc = queue_write(conn, &write->uv, out->bufs, out->n, on_sent);
    }
    if (rc < 0) {
        net_conn_close(conn);
    }
    return false;
}

/* ---- one answer ------------------------------------------------------------------------------ */

static void on_written(uv_write_t *write, int status) {
    struct net_call *call =
        (struct net_call *)(void *)((char *)write - offsetof(struct net_call, write));
    struct net_conn *conn = call->conn;
    call->writing = false;
    if (!conn) {
        net_call_write_aborted(call);
        return;
    }
    if (status < 0) {
        net_conn_close(conn);
        return;
    }
    count_sent(conn, call->writing_bytes);
    conn->protocol->on_written(call);
    net_conn_update_io(conn);
}

bool net_call_send(struct net_call *call, struct net_outgoing *out) {
    struct net_conn *conn = call->conn;
    net_conn_flush(conn);
    if (conn->phase == NET_CLOSED) {
        return false;
    }
    int rc = send_now(conn, out);
    if (rc == 0 && out->n_bytes == 0) {
        return true;
    }
    if (rc == 0) {
        call->writing_bytes = out->n_bytes;
        call->writing = true;
        rc = queue_write(conn, &call->write, out->bufs, out->n, on_written);
        call->writing = rc == 0;
    }
    if (rc < 0) {
        net_conn_close(conn);
    }
    return false;
}
