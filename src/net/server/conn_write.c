/* Bytes out: in place, up to WRITE_SLICE_BYTES at once; a longer rest is queued, and leaves in
 * slices of that size, between which other connections are served. Small responses of pipelined
 * requests are coalesced into one write. */
#include "net/server/conn_write.h"

#include <assert.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "net/server/tls/conn.h"

enum { MAX_TRIES = 8 }; /* per write, so that other connections get their share */
/* Of a response, without a break: up to two slices when it is ready, one each time that deferred
 * work runs. Connections that are due at the same time share WRITE_ITERATION_BYTES. */
enum {
    WRITE_SLICE_BYTES = 256 * 1024,
    MIN_WRITE_SLICE_BYTES = 16 * 1024,
    WRITE_ITERATION_BYTES = 1024 * 1024, /* takes less than a millisecond */
    WRITE_SLICE_BUFS = 16,
};

/* ---- socket or TLS --------------------------------------------------------------------------- */

ssize_t net_conn_try_write(struct net_conn *conn, uv_buf_t *bufs, unsigned n) {
    if (!write_queue_is_empty(&conn->writes)) {
        return 0; /* after the writes in progress */
    }
    if (conn->tls) {
        ssize_t n_bytes = net_tls_try_write(conn, bufs, n);
        conn->n_written += n_bytes > 0 ? (uint64_t)n_bytes : 0;
        return n_bytes;
    }
    int rc = uv_try_write(&conn->uv.stream, bufs, n);
    if (rc > 0) {
        conn->n_written += (uint64_t)rc;
        metric_add(METRIC_SENT_BYTES_TOTAL, rc);
    }
    return rc == UV_EAGAIN ? 0 : rc;
}

/* ---- queued writes --------------------------------------------------------------------------- */

/* A part of the first queued write: libuv writes all that the socket takes at once, which can be
 * megabytes that take milliseconds. While writes are queued, a slice is in progress, or the
 * connection is in the worker's list of those whose next slice is due. */
struct slice {
    uv_write_t write;
    struct net_conn *conn;
};

/* libuv calls on_slice_sent several times between two polls: the next slice is deferred, so that
 * others are served before it. */
static void defer_slice(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    LIST_INSERT_HEAD(&server_worker->slices_due, conn, slice_link);
    conn->slice_due = true;
    loop_iteration_defer(worker_loop_iteration(server_worker->worker), &server_worker->send_slices);
}

static void cancel_slice(struct net_conn *conn) {
    if (conn->slice_due) {
        LIST_REMOVE(conn, slice_link);
        conn->slice_due = false;
    }
}

static void on_slice_sent(uv_write_t *write, int status) {
    struct slice *slice = (struct slice *)write;
    struct net_conn *conn = slice->conn;
    free(slice);
    if (status < 0) {
        net_conn_close(conn);
        return; /* queued writes are completed when the handle is closed */
    }
    struct queued_writes done;
    write_queue_pop_taken(&conn->writes, &done);
    if (!write_queue_is_empty(&conn->writes)) {
        defer_slice(conn);
    }
    queued_writes_complete(&done, 0);
}

/* Sends at most `most` bytes. Returns: 0, or libuv's error. */
static int send_slice(struct net_conn *conn, size_t most) {
    uv_buf_t bufs[WRITE_SLICE_BUFS];
    struct queued_write *first = STAILQ_FIRST(&conn->writes.writes);
    struct slice *slice = malloc(sizeof(*slice));
    if (!slice) {
        return UV_ENOMEM;
    }
    slice->conn = conn;
    unsigned n = write_cursor_peek(first->rest, most, bufs, WRITE_SLICE_BUFS);
    size_t n_bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        n_bytes += bufs[i].len;
    }
    int rc = uv_write(&slice->write, &conn->uv.stream, bufs, n, on_slice_sent);
    if (rc != 0) {
        free(slice);
        return rc;
    }
    write_queue_advance(&conn->writes, first, n_bytes);
    return 0;
}

bool net_conns_send_slices(struct deferred_task *task) {
    struct server_worker *server_worker = CONTAINER_OF(task, struct server_worker, send_slices);
    struct net_conn *conn;
    size_t most = WRITE_SLICE_BYTES, n = 0;
    LIST_FOREACH(conn, &server_worker->slices_due, slice_link) {
        n++;
    }
    if (n > WRITE_ITERATION_BYTES / WRITE_SLICE_BYTES) {
        most = WRITE_ITERATION_BYTES / n;
        most = most > MIN_WRITE_SLICE_BYTES ? most : MIN_WRITE_SLICE_BYTES;
    }
    loop_iteration_watch(worker_loop_iteration(server_worker->worker));
    while ((conn = LIST_FIRST(&server_worker->slices_due))) {
        cancel_slice(conn);
        if (conn->phase != NET_CLOSED && send_slice(conn, most) != 0) {
            net_conn_close(conn);
        }
    }
    return false;
}

static void on_written(uv_write_t *uv, int status) {
    struct net_write *write = (struct net_write *)uv;
    if (status == 0 && !write->conn->tls) { /* TLS counts its records itself */
        metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)write->n_bytes);
    }
    write->done(write, status);
}

/* Queues a write after those in progress. Returns: 0, or libuv's error; then write->done is not
 * called. */
static int queue_write(struct net_conn *conn, struct net_write *write, const uv_buf_t *bufs,
                       unsigned n) {
    write->conn = conn;
    write->n_bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        write->n_bytes += bufs[i].len;
    }
    conn->n_written += write->n_bytes;
    if (conn->tls) {
        return net_tls_queue_write(conn, &write->uv, bufs, n, on_written);
    }
    bool in_progress = !write_queue_is_empty(&conn->writes);
    if (write->n_bytes <= WRITE_SLICE_BYTES && !in_progress) {
        return uv_write(&write->uv, &conn->uv.stream, bufs, n, on_written);
    }
    if (!write_queue_add(&conn->writes, &write->uv, bufs, n, on_written)) {
        return UV_ENOMEM;
    }
    if (!in_progress) {
        defer_slice(conn);
    }
    return 0;
}

void net_conn_cancel_writes(struct net_conn *conn) {
    struct queued_writes cancelled;
    cancel_slice(conn);
    write_queue_pop_all(&conn->writes, &cancelled);
    queued_writes_complete(&cancelled, UV_ECANCELED);
}

size_t net_conn_unsent_bytes(const struct net_conn *conn) {
    return uv_stream_get_write_queue_size(&conn->uv.stream) + conn->writes.n_bytes;
}

uint64_t net_conn_taken_bytes(const struct net_conn *conn) {
    uv_os_fd_t fd;
    int n_unacknowledged = 0;
    if (uv_fileno(&conn->uv.handle, &fd) != 0 || ioctl(fd, SIOCOUTQ, &n_unacknowledged) != 0) {
        n_unacknowledged = 0;
    }
    return conn->n_written - net_conn_unsent_bytes(conn) - (uint64_t)n_unacknowledged;
}

/* ---- coalesced responses --------------------------------------------------------------------- */

/* Small responses that the socket did not take at once. */
struct flush {
    struct net_write write;
    char data[];
};

static void flush_free(struct flush *flush) {
    struct net_conn *conn = flush->write.conn;
    conn->n_flushing--;
    memory_conn_subtract(conn->account, MEMORY_CONN_BUFFERS, flush->write.n_bytes);
    free(flush);
}

static void on_flushed(struct net_write *write, int status) {
    struct net_conn *conn = write->conn;
    flush_free((struct flush *)write);
    if (status < 0) {
        net_conn_close(conn);
        return;
    }
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
    flush->write.done = on_flushed;
    memcpy(flush->data, data, n_bytes);
    uv_buf_t buf = {.base = flush->data, .len = n_bytes};
    conn->n_flushing++;
    memory_conn_hold(conn->account, MEMORY_CONN_BUFFERS, n_bytes);
    if (queue_write(conn, &flush->write, &buf, 1) != 0) {
        flush_free(flush);
        net_conn_close(conn);
    }
}

/* Sends at once what the socket takes, the rest from a copy. */
static void write_small(struct net_conn *conn, const char *data, size_t n_bytes) {
    /* libuv's type has no const; it does not write there. */
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

/* ---- writes in place ------------------------------------------------------------------------- */

/* Removes the first `n_bytes` from the list. */
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

/* Writes at most `most` bytes. Returns: as net_conn_try_write. */
static ssize_t try_write_within(struct net_conn *conn, struct net_outgoing *out, size_t most) {
    unsigned n = 0;
    size_t n_bytes = 0;
    while (n < out->n && n_bytes < most) {
        n_bytes += out->bufs[n++].len;
    }
    size_t n_over = n_bytes > most ? n_bytes - most : 0;
    uv_buf_t *last = &out->bufs[n - 1];
    last->len -= n_over;
    ssize_t rc = net_conn_try_write(conn, out->bufs, n);
    last->len += n_over;
    return rc;
}

/* Sends what the socket takes now of a slice; that often needs two or three writes while the peer
 * reads. Returns: a negative error that ends the connection, or 0. */
static int send_now(struct net_conn *conn, struct net_outgoing *out) {
    ssize_t n;
    unsigned tries = 0;
    size_t left = WRITE_SLICE_BYTES;
    if (out->n_bytes >= LOOP_WATCH_MIN_BYTES) {
        loop_iteration_watch(worker_loop_iteration(conn->server_worker->worker));
    }
    if (out->n_bytes > SOCKET_UNSENT_TIGHT_BYTES) {
        conn_socket_limit_output(conn);
    }
    do {
        n = try_write_within(conn, out, left);
        outgoing_cut(out, n > 0 ? (size_t)n : 0);
        left -= n > 0 ? (size_t)n : 0;
    } while (n > 0 && out->n_bytes > 0 && left > 0 && ++tries < MAX_TRIES);
    return n < 0 ? (int)n : 0;
}

int net_conn_write(struct net_conn *conn, struct net_outgoing *out, struct net_write *write) {
    int rc = send_now(conn, out);
    if (rc == 0 && out->n_bytes > 0) {
        return queue_write(conn, write, out->bufs, out->n);
    }
    return rc == 0 ? 1 : rc;
}
