/* A connection of any protocol: opening, reading, writing, timeouts, linger and close, and the
 * memory of the call on it.
 *
 * Input is read into the worker's buffer, or straight into a body. Bytes that arrive while a
 * response is pending are kept in the connection's one pending-input buffer; while that is in use,
 * nothing is read.
 *
 * Output is sent in place, up to WRITE_SLICE_BYTES at once; a longer rest is queued, and leaves in
 * slices of that size, between which other connections are served. Small responses of pipelined
 * requests are coalesced into one write. */
#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/compiler.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/server/call.h"
#include "net/server/server.h"
#include "net/server/tls/conn.h"

static void net_call_write_aborted(struct net_call *call);

enum { MAX_TRIES = 8 };                 /* per write, so that other connections get their share */
enum { READ_BURST_BYTES = 512 * 1024 }; /* takes some 0.3 ms, with the page faults */
/* Of a response, without a break: up to two slices when it is ready, one each time that deferred
 * work runs. Connections that are due at the same time share WRITE_ITERATION_BYTES. */
enum {
    WRITE_SLICE_BYTES = 256 * 1024,
    MIN_WRITE_SLICE_BYTES = 16 * 1024,
    WRITE_ITERATION_BYTES = 1024 * 1024, /* takes less than a millisecond */
    WRITE_SLICE_BUFS = 16,
};

/* ---- lists of buffers ------------------------------------------------------------------------ */

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

/* ---- socket or TLS --------------------------------------------------------------------------- */

/* Counts plaintext only; TLS counts its records itself. */
static void count_sent(const struct net_conn *conn, size_t n_bytes) {
    if (!conn->tls) {
        metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)n_bytes);
    }
}

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

static int queue_in_slices(struct net_conn *conn, uv_write_t *write, const uv_buf_t *bufs,
                           unsigned n, uv_write_cb done) {
    bool in_progress = !write_queue_is_empty(&conn->writes);
    if (!write_queue_add(&conn->writes, write, bufs, n, done)) {
        return UV_ENOMEM;
    }
    if (!in_progress) {
        defer_slice(conn);
    }
    return 0;
}

/* Queues a write after those in progress. Returns: 0, or libuv's error; then `done` is not
 * called. */
static int queue_write(struct net_conn *conn, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                       uv_write_cb done) {
    size_t n_bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        n_bytes += bufs[i].len;
    }
    conn->n_written += n_bytes;
    if (conn->tls) {
        return net_tls_queue_write(conn, write, bufs, n, done);
    }
    if (n_bytes > WRITE_SLICE_BYTES || !write_queue_is_empty(&conn->writes)) {
        return queue_in_slices(conn, write, bufs, n, done);
    }
    return uv_write(write, &conn->uv.stream, bufs, n, done);
}

/* The handle is closed. */
static void cancel_writes(struct net_conn *conn) {
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
    uv_write_t write;
    struct net_conn *conn;
    size_t n_bytes;
    char data[];
};

static void flush_free(struct flush *flush) {
    flush->conn->n_flushing--;
    memory_conn_subtract(flush->conn->account, MEMORY_CONN_BUFFERS, flush->n_bytes);
    free(flush);
}

static void on_flushed(uv_write_t *write, int status) {
    struct flush *flush = (struct flush *)write;
    struct net_conn *conn = flush->conn;
    size_t n_bytes = flush->n_bytes;
    flush_free(flush);
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
    memory_conn_hold(conn->account, MEMORY_CONN_BUFFERS, n_bytes);
    if (queue_write(conn, &flush->write, &buf, 1, on_flushed) != 0) {
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

/* Sends the coalesced responses. */
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

/* ---- a call's response ----------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status) {
    struct net_call *call = CONTAINER_OF(write, struct net_call, write);
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

void net_conn_discard(struct net_conn *conn, struct str *data) {
    conn->discarded += data->len;
    *data = str_make(data->ptr + data->len, 0);
    if (conn->phase == NET_LINGER &&
        conn->discarded > conn->server_worker->server->limits.discard_size) {
        net_conn_close(conn);
    }
}

/* Returns: false when the bytes must wait. */
static bool consume_step(struct net_conn *conn, struct str *data) {
    if (conn->phase == NET_OPEN) {
        return conn->protocol->on_bytes(conn, data);
    }
    net_conn_discard(conn, data);
    return true;
}

/* A connection that is closed, or being closed, drops its input. */
static bool is_held(struct net_conn *conn) {
    if (conn->phase != NET_OPEN) {
        return false;
    }
    if (conn_socket_is_free(&conn->socket, conn->n_written)) {
        conn->socket.held = false;
        return false;
    }
    return conn_socket_is_held(conn);
}

/* Pipelined requests take turns with other connections: once the turn is over, the rest is pending.
 * While no other connection waits, that is checked once in so many steps, which are heads and
 * bodies. */
enum { CONSUME_STEPS = 8 };

static bool is_turn_over_after(struct loop_iteration *iteration, size_t n_steps) {
    bool checks = n_steps % CONSUME_STEPS == 0 || loop_iteration_n_turns(iteration) > 0;
    return checks && loop_iteration_turn_is_over(iteration);
}

/* Returns: the bytes that must wait. */
static struct str consume_input(struct net_conn *conn, struct str data) {
    struct server_worker *server_worker = conn->server_worker;
    struct loop_iteration *iteration = worker_loop_iteration(server_worker->worker);
    size_t n_steps = 0;
    assert(!conn->consuming);
    conn->consuming = true;
    while (data.len > 0 && !is_held(conn) && consume_step(conn, &data)) {
        if (server_worker->ended) {
            server_worker_free_ended_calls(server_worker);
        }
        if (data.len > 0 && is_turn_over_after(iteration, ++n_steps)) {
            server_worker_schedule_resume(server_worker, conn);
            break;
        }
    }
    conn->consuming = false;
    conn->n_pipelined_bytes = 0;
    return data;
}

/* ---- pending input --------------------------------------------------------------------------- */

static void pending_input_free(struct net_conn *conn, char *pending) {
    if (pending) {
        memory_conn_subtract(conn->account, MEMORY_CONN_BUFFERS, conn->pending_len);
        free(pending);
    }
}

/* So little is kept also when the budget is used up: no client is to pay for what others hold. */
enum { KEPT_INPUT_BYTES = 4096 };

static void pending_input_copy(struct net_conn *conn, struct str data) {
    assert(!conn->pending_input && data.len <= NET_DECRYPTED_BYTES);
    bool fits = memory_conn_add(conn->account, MEMORY_CONN_BUFFERS, data.len);
    if (!fits && data.len <= KEPT_INPUT_BYTES) {
        memory_conn_hold(conn->account, MEMORY_CONN_BUFFERS, data.len);
        fits = true;
    }
    conn->pending_input = fits ? malloc(data.len) : NULL;
    if (!conn->pending_input) {
        memory_conn_subtract(conn->account, MEMORY_CONN_BUFFERS, fits ? data.len : 0);
        net_conn_close(conn);
        return;
    }
    memcpy(conn->pending_input, data.ptr, data.len);
    conn->pending_at = 0;
    conn->pending_len = data.len;
}

void net_conn_process_input(struct net_conn *conn, struct str data) {
    struct str rest = consume_input(conn, data);
    if (rest.len > 0 && conn->phase != NET_CLOSED) {
        pending_input_copy(conn, rest);
    }
}

static void process_pending(struct net_conn *conn) {
    char *pending = conn->pending_input;
    struct str data = str_make(pending + conn->pending_at, conn->pending_len - conn->pending_at);
    conn->pending_input = NULL;
    data = consume_input(conn, data);
    if (data.len > 0) {
        conn->pending_input = pending;
        conn->pending_at = conn->pending_len - data.len;
    } else {
        pending_input_free(conn, pending);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns: where the protocol wants the next bytes, or NULL for the worker's buffer. TLS records
 * must be decrypted first. */
static char *direct_read_buffer(struct net_conn *conn, size_t *n_bytes) {
    bool plain = conn->phase == NET_OPEN && !conn->tls;
    return plain ? conn->protocol->read_buffer(conn, n_bytes) : NULL;
}

/* Returns: whether the next bytes are part of a large body. */
static bool is_receiving_bulk(struct net_conn *conn) {
    const struct net_protocol *protocol = conn->protocol;
    size_t n_bytes;
    return direct_read_buffer(conn, &n_bytes) ||
           (protocol->is_receiving_bulk && protocol->is_receiving_bulk(conn));
}

/* While other connections wait for a turn, which is short then, requests are read in small parts:
 * the rest stays in the kernel, not in pending_input. */
enum { TURN_READ_BYTES = 8192 };

/* `buf` gets the place of the next bytes. */
static void read_buffer(struct net_conn *conn, const struct loop_iteration *iteration,
                        uv_buf_t *buf) {
    buf->base = direct_read_buffer(conn, &buf->len);
    if (!buf->base) {
        bool small = loop_iteration_n_turns(iteration) > 0 && !is_receiving_bulk(conn);
        buf->base = conn->server_worker->in;
        buf->len = small ? TURN_READ_BYTES : NET_READ_BYTES;
    } else if (buf->len > READ_BURST_BYTES) {
        buf->len = READ_BURST_BYTES;
    }
}

/* Without a buffer libuv reads nothing, and calls on_read with UV_ENOBUFS. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct net_conn *conn = handle->data;
    struct loop_iteration *iteration = worker_loop_iteration(conn->server_worker->worker);
    (void)suggested;
    if (loop_iteration_is_over(iteration)) {
        *buf = (uv_buf_t){0};
    } else {
        read_buffer(conn, iteration, buf);
    }
}

void net_conn_handle_eof(struct net_conn *conn, bool half_closed) {
    conn->eof = true;
    conn->reading = false; /* libuv has stopped reading */
    if (net_tls_in_handshake(conn) && conn->phase == NET_OPEN) {
        net_tls_handshake_failed(conn, TLS_FAILURE_DISCONNECTED,
                                 "the client disconnected during the handshake");
        half_closed = false;
    }
    if (conn->phase != NET_OPEN || !half_closed || !conn->protocol->on_eof(conn)) {
        net_conn_close(conn);
    }
}

/* Distinguishes a reset from EOF: libuv reports EOF when bytes arrived before the reset; the kernel
 * knows that nothing can be sent any more. */
static bool is_reset(const struct net_conn *conn) {
    uv_os_fd_t fd;
    if (uv_fileno(&conn->uv.handle, &fd) != 0) {
        return true;
    }
    struct pollfd polled = {.fd = fd};
    return poll(&polled, 1, 0) == 1 && (polled.revents & (POLLERR | POLLHUP)) != 0;
}

/* libuv reads on at once as long as buffers are filled. A full buffer that is not part of a body
 * means work (many requests, or a text to decompress): lets other connections run first. So does a
 * body after each READ_BURST_BYTES. */
static void yield_to_other_conns(struct net_conn *conn, size_t n_read, size_t n_buffer,
                                 bool is_bulk) {
    conn->n_burst_bytes = n_read == n_buffer ? conn->n_burst_bytes + n_read : 0;
    if (conn->phase == NET_OPEN && n_read == n_buffer &&
        (!is_bulk || conn->n_burst_bytes >= READ_BURST_BYTES)) {
        conn->n_burst_bytes = 0;
        server_worker_schedule_resume(conn->server_worker, conn);
    }
}

/* `n_read` bytes, at least one, are in `buf`, which read_buffer has filled in. */
static void receive(struct net_conn *conn, size_t n_read, const uv_buf_t *buf) {
    struct server_worker *server_worker = conn->server_worker;
    metric_add(METRIC_RECEIVED_BYTES_TOTAL, (int64_t)n_read);
    if (n_read >= LOOP_WATCH_MIN_BYTES) {
        loop_iteration_watch(worker_loop_iteration(server_worker->worker));
    }
    conn->received = true;
    conn->n_read += n_read;
    conn_entry_set_idle(&conn->entry, CONN_BUSY); /* until update_timer */
    if (buf->base != server_worker->in) {
        conn->protocol->on_read_buffer_filled(conn, n_read);
        server_worker_free_ended_calls(server_worker);
        yield_to_other_conns(conn, n_read, buf->len, true);
        return;
    }
    struct str data = str_make(buf->base, n_read);
    if (conn->tls) {
        net_tls_receive(conn, data);
    } else {
        net_conn_process_input(conn, data);
    }
    if (n_read == buf->len && conn->phase == NET_OPEN) {
        yield_to_other_conns(conn, n_read, buf->len, is_receiving_bulk(conn));
    }
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf) {
    struct net_conn *conn = stream->data;
    if (n_read == 0) {
        return; /* spurious wakeup */
    }
    if (n_read == UV_ENOBUFS) {
        server_worker_schedule_resume(conn->server_worker, conn);
        net_conn_read_stop(conn);
        conn_socket_wait(conn);
        return;
    }
    if (n_read < 0) {
        metric_add(METRIC_KEEPALIVE_TIMEOUTS_TOTAL, n_read == UV_ETIMEDOUT);
        net_conn_handle_eof(conn, n_read == UV_EOF && !is_reset(conn));
    } else {
        receive(conn, (size_t)n_read, buf);
    }
    net_conn_update_io(conn);
    loop_iteration_run_if_full(worker_loop_iteration(conn->server_worker->worker));
}

static bool wants_to_read(const struct net_conn *conn);

/* Reads as libuv does, which would wait for the next poll, where the connection might have to wait
 * again. */
static void read_now(struct net_conn *conn) {
    uv_os_fd_t fd;
    uv_buf_t buf;
    ssize_t n_read;
    if (uv_fileno(&conn->uv.handle, &fd) != 0) {
        return;
    }
    do {
        read_buffer(conn, worker_loop_iteration(conn->server_worker->worker), &buf);
        n_read = recv(fd, buf.base, buf.len, MSG_DONTWAIT);
        if (n_read > 0) {
            receive(conn, (size_t)n_read, &buf);
        } else if (n_read == 0 || (errno != EAGAIN && errno != EINTR)) {
            metric_add(METRIC_KEEPALIVE_TIMEOUTS_TOTAL, n_read < 0 && errno == ETIMEDOUT);
            net_conn_handle_eof(conn, n_read == 0 && !is_reset(conn));
        }
    } while (n_read > 0 && (size_t)n_read == buf.len && conn->phase != NET_CLOSED &&
             wants_to_read(conn));
}

void net_conn_run_turn(struct loop_turn *turn) {
    struct net_conn *conn = CONTAINER_OF(turn, struct net_conn, turn);
    if (conn->phase != NET_CLOSED && is_reset(conn)) {
        net_conn_handle_eof(conn, false); /* what the client has sent is not worked for */
    } else if (conn->phase != NET_CLOSED && conn->pending_input) {
        process_pending(conn);
    } else if (conn->phase != NET_CLOSED && wants_to_read(conn)) {
        read_now(conn);
    }
    net_conn_update_io(conn);
    server_worker_free_ended_calls(conn->server_worker);
}

static void net_conn_read_start(struct net_conn *conn) {
    if (!conn->reading) {
        conn->reading = uv_read_start(&conn->uv.stream, on_alloc, on_read) == 0;
    }
}

void net_conn_read_stop(struct net_conn *conn) {
    if (conn->reading) {
        uv_read_stop(&conn->uv.stream);
        conn->reading = false;
    }
}

struct net_call *net_call_new(struct net_conn *conn, size_t n_bytes) {
    struct server_worker *server_worker = conn->server_worker;
    struct arena *arena = arena_new(worker_arenas(server_worker->worker),
                                    (size_t)server_worker->server->limits.request_memory);
    struct net_call *call = arena ? arena_calloc(arena, 1, n_bytes) : NULL;
    if (!call) {
        arena_free(arena);
        return NULL;
    }
    arena_set_budget(arena, &server_worker->server->budget->arena);
    call->arena = arena;
    call->conn = conn;
    call->server_worker = server_worker;
    server_worker->n_calls++;
    return call;
}

static void release_head(struct net_call *call) {
    if (call->n_head_reserved > 0) {
        net_budget_release(call->server_worker->server->budget, NET_BODY_HTTP,
                           call->n_head_reserved);
        call->n_head_reserved = 0;
    }
}

void net_call_free(struct net_call *call) {
    release_head(call);
    call->server_worker->n_calls--;
    arena_free(call->arena);
}

struct arena *net_call_reply_arena(struct net_call *call) {
    if (!call->reply_arena) {
        call->reply_arena = arena_new(worker_arenas(call->server_worker->worker), 0);
    }
    return call->reply_arena;
}

void net_call_count_in_flight(struct net_call *call) {
    if (!call->counted) {
        call->counted = true;
        atomic_fetch_add_explicit(&call->server_worker->in_flight, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, 1);
    }
}

bool net_call_body_is_too_slow(struct net_call *call) {
    const struct net_limits *limits = &call->server_worker->server->limits;
    uint64_t n_bytes = call->received - call->rate_received;
    call->rate_received = call->received;
    uint64_t n_excusing =
        receive_window_add(&call->body_window, n_bytes, call->received, clock_now_ns(),
                           limits->min_body_rate, limits->body_timeout_ns);
    return n_excusing > 0 && net_conn_waiting_bytes(call->conn) < n_excusing;
}

void net_call_free_body(struct net_call *call) {
    struct server_worker *server_worker = call->server_worker;
    if (call->body.block) {
        uint64_t now_ns = clock_now_ns();
        body_fini(&call->body, now_ns);
        server_worker_schedule_timer(server_worker, body_pool_trim(&server_worker->pool, now_ns));
    } else if (call->body.n_reserved > 0) {
        body_fini(&call->body, 0);
    }
}

void net_call_finish(struct net_call *call) {
    struct server_worker *server_worker = call->server_worker;
    assert(!call->writing);
    net_call_release_reply(call);
    release_head(call);
    if (call->handler_started) {
        server_worker->server->protocol->on_call_end(call);
    }
    net_call_free_body(call);
    if (call->counted) {
        atomic_fetch_sub_explicit(&server_worker->in_flight, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, -1);
    }
    call->conn = NULL;
    call->ended_next = server_worker->ended;
    server_worker->ended = call;
    server_worker->n_calls--;
    server_worker_schedule_deferred(server_worker);
}

/* The peer disconnected during a write: ends the call, unless the handler has more of the response
 * to send. */
static void net_call_write_aborted(struct net_call *call) {
    if (call->is_streaming && !call->replied) {
        net_call_release_reply(call);
    } else {
        net_call_finish(call);
    }
}

void net_call_on_conn_closed(struct net_call *call, bool whole) {
    bool handler_has_it = call->handler_started && !call->replied;
    call->conn = NULL;
    if (handler_has_it) {
        /* May reply, which ends the call. */
        call->server_worker->server->protocol->on_call_disconnected(call);
    }
    /* A handler that waits for the body does not reply any more; one that has the request does. A
     * write in progress ends the call in its callback. */
    bool ends_later =
        call->writing || (handler_has_it && (whole || call->is_streaming || call->replied));
    if (!ends_later) {
        net_call_finish(call);
    }
}

/* Upper bound of the linger, however fast the peer sends. */
static const uint64_t LINGER_MAX_NS = 30000000000u;

/* ---- opening and closing --------------------------------------------------------------------- */

/* A closed connection is freed when no message is on its way to it and its protocol has released
 * it. */
static void free_if_unused(struct net_conn *conn) {
    if (conn->closed && !conn->entry.called && !conn->held) {
        free(conn);
    }
}

static void conn_free(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    struct net_budget *budget = server_worker->server->budget;
    assert(!conn->turn.queued && !conn->slice_due);
    atomic_fetch_sub_explicit(&server_worker->n_assigned_conns, 1, memory_order_relaxed);
    bool has_place = conn_table_remove(&budget->conns, &conn->entry,
                                       conn->over_limit ? &budget->n_refused : &budget->n_conns);
    if (!has_place) {
        atomic_fetch_sub_explicit(&budget->n_leaving, 1, memory_order_relaxed);
    }
    if (conn->counted) {
        net_budget_give_conn(budget, conn->protocol->conn_memory_bytes);
    }
    net_tls_free(conn);
    pending_input_free(conn, conn->pending_input);
    memory_account_close(conn->account);
    net_peer_unref(conn->peer);
    conn->closed = true;
    free_if_unused(conn);
}

void net_conn_release(struct net_conn *conn) {
    conn->held = false;
    free_if_unused(conn);
}

static void on_closed(uv_handle_t *handle) {
    struct net_conn *conn = handle->data;
    struct server_worker *server_worker = conn->server_worker;
    cancel_writes(conn);
    server_worker_remove_conn(server_worker, conn);
    metric_add(METRIC_CONNECTIONS, -1);
    conn_free(conn);
    server_worker_schedule_deferred(server_worker);
}

/* Returns: 0, or libuv's error; the descriptor belongs to the handle on success. */
static int handle_open(struct net_conn *conn) {
    uv_loop_t *loop = worker_loop(conn->server_worker->worker);
    int rc;
    if (conn->is_unix) {
        uv_pipe_init(loop, &conn->uv.pipe, 0); /* uv_pipe_init and uv_tcp_init cannot fail */
        rc = uv_pipe_open(&conn->uv.pipe, conn->fd);
    } else {
        uv_tcp_init(loop, &conn->uv.tcp);
        rc = uv_tcp_open(&conn->uv.tcp, conn->fd);
    }
    conn->uv.handle.data = conn;
    return rc;
}

static void start_keepalive(struct net_conn *conn) {
    conn->received = false;
    if (conn->protocol->send_ping && conn->phase != NET_CLOSED) {
        server_worker_start_keepalive(conn->server_worker, conn);
    }
}

void net_conn_reject(struct net_conn *conn) {
    struct error err;
    metric_add(METRIC_CONNECTIONS_REFUSED_TOTAL, 1);
    const struct net_budget *budget = conn->server_worker->server->budget;
    if (!conn->no_memory) {
        error_set(&err, ST_TOO_MANY_CONNECTIONS,
                  "this server takes at most %llu connections (--max-connections)",
                  (unsigned long long)budget->max_connections);
    } else {
        error_set(&err, ST_TOO_MANY_CONNECTIONS,
                  "no memory for another connection: those that are open take up half of the %llu "
                  "bytes of --client-memory, or requests and responses all of it",
                  (unsigned long long)budget->memory);
    }
    conn->protocol->on_refused(conn, &err);
}

void net_conn_open(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    if (server_worker->stopping || !server_worker_start(server_worker)) {
        close(conn->fd);
        conn_free(conn);
        return;
    }
    int rc = handle_open(conn);
    if (rc != 0) {
        close(conn->fd);
    } else if (!conn->over_limit) { /* one that is refused has no place */
        conn_entry_set_fd(&conn->entry, conn->fd);
    }
    conn->fd = -1;
    conn->peer = net_peer_new(conn->host);
    conn->account =
        conn->peer ? memory_account_new(&server_worker->memory.quota, conn->peer) : NULL;
    memory_conn_count_base(conn->account, conn->counted ? conn->protocol->conn_memory_bytes : 0);
    server_worker_add_conn(server_worker, conn);
    metric_add(METRIC_CONNECTIONS, 1);
    metric_add(METRIC_CONNECTIONS_TOTAL, 1);
    if (rc != 0 || !conn->account || (conn->tls && !net_tls_open(conn))) {
        net_conn_close(conn);
    } else if (conn->over_limit && !conn->tls) {
        net_conn_reject(conn);
    } /* over TLS: after the handshake */
    start_keepalive(conn);
    net_conn_update_io(conn);
}

void net_conn_close(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    if (conn->phase == NET_CLOSED) {
        return;
    }
    if (conn->tls) {
        net_tls_send_close_notify(conn);
    }
    conn->phase = NET_CLOSED;
    conn_socket_end(conn);
    timer_list_stop(&server_worker->conn_timers, &conn->timeout);
    timer_list_stop(&server_worker->conn_timers, &conn->keepalive);
    loop_iteration_end_wait(worker_loop_iteration(server_worker->worker), &conn->turn);
    if (server_worker->out_conn == conn) {
        server_worker->out_len = 0;
        server_worker->out_conn = NULL;
    }
    conn->protocol->on_close(conn);
    conn_entry_set_fd(&conn->entry, -1);
    uv_close(&conn->uv.handle, on_closed);
}

bool net_conn_has_unread(const struct net_conn *conn) {
    uv_os_fd_t fd;
    char byte;
    return uv_fileno(&conn->uv.handle, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Not so where bytes have only just arrived: a head whose bytes trickle has one time for all. */
static bool waits_for_turn(const struct net_conn *conn) {
    return conn->pending_input || conn->turn.queued;
}

bool net_conn_is_behind(const struct net_conn *conn) {
    return waits_for_turn(conn) || (wants_to_read(conn) && net_conn_has_unread(conn));
}

uint64_t net_conn_waiting_bytes(const struct net_conn *conn) {
    uint64_t n_pending = conn->pending_input ? conn->pending_len - conn->pending_at : 0;
    uv_os_fd_t fd;
    int n_unread = 0;
    if (uv_fileno(&conn->uv.handle, &fd) != 0 || ioctl(fd, FIONREAD, &n_unread) != 0) {
        n_unread = 0;
    }
    return n_pending + (uint64_t)n_unread;
}

bool net_conn_is_behind_mark(const struct net_conn *conn, uint64_t *mark) {
    if (!net_conn_is_behind(conn)) {
        return false;
    }
    if (*mark == 0) {
        *mark = conn->n_read + net_conn_waiting_bytes(conn) + 1;
    }
    return conn->n_read < *mark;
}

enum { SLOW_WRITE_BYTES = 16384 };
static const uint64_t SLOW_WRITE_NS = UINT64_C(500000000);

static void log_closed_for_another(struct net_conn *conn) {
    struct log_limit *log = &conn->server_worker->closed_log;
    char peer[ADDRESS_TEXT_BYTES];
    if (log_limit_allow(log)) {
        log_event(LOG_WARNING,
                  "connection closed for another one: no memory or place for more "
                  "(--client-memory, --max-connections), and its requests wait for their client",
                  LOG_CSTR("peer", net_conn_peer(conn, peer)),
                  LOG_CSTR("protocol", conn->protocol->name),
                  LOG_U64("suppressed", log->n_suppressed));
        log->n_suppressed = 0;
    }
}

static void set_waiting_now(struct net_conn *conn) {
    uint64_t now_ms = uv_now(worker_loop(conn->server_worker->worker));
    conn_entry_set_waiting(&conn->entry, now_ms * 1000000);
}

/* Whether the client has taken little of what waits for the socket. */
static bool reads_slowly(const struct net_conn *conn) {
    uint64_t after_ns = conn->server_worker->conn_timers.after_ns[NET_TIMEOUT_WRITE];
    return conn->timeout.armed && conn->timeout.timer_class == NET_TIMEOUT_WRITE &&
           clock_now_ns() - (conn->timeout.due_ns - after_ns) >= SLOW_WRITE_NS &&
           net_bytes_since(net_conn_taken_bytes(conn), conn->n_taken_at_arm) < SLOW_WRITE_BYTES;
}

/* Its requests wait for the client, as they did when its place was taken. */
static bool still_waits(const struct net_conn *conn) {
    const struct net_protocol *protocol = conn->protocol;
    if (!conn->entry.was_waiting || !conn_entry_is_waiting(&conn->entry)) {
        return false;
    }
    if (conn->timeout.armed && conn->timeout.timer_class == NET_TIMEOUT_BODY) {
        return true;
    }
    return reads_slowly(conn) || (protocol->waits_for_client && protocol->waits_for_client(conn));
}

/* What a client sent before it half-closed, and what has not begun of it, is dropped. */
static bool still_idle(const struct net_conn *conn) {
    bool has_input = conn->turn.queued || conn->pending_input || net_conn_has_unread(conn);
    return conn_entry_is_idle(&conn->entry) && (!has_input || conn->eof);
}

/* Whether the client has closed its side, which was not read yet, and has all that was sent. */
static bool has_left(const struct net_conn *conn) {
    uv_os_fd_t fd;
    if (!conn->entry.had_left || uv_fileno(&conn->uv.handle, &fd) != 0) {
        return false;
    }
    struct pollfd polled = {.fd = fd, .events = POLLRDHUP};
    return poll(&polled, 1, 0) == 1 && net_conn_taken_bytes(conn) == conn->n_written;
}

/* It has become busy: it is open as before. */
static void keep_place(struct net_conn *conn) {
    struct net_budget *budget = conn->server_worker->server->budget;
    (void)net_budget_add_conn(budget);
    atomic_fetch_sub_explicit(&budget->n_leaving, 1, memory_order_relaxed);
    uint8_t n_tried = conn->entry.n_tried;
    if (conn->entry.was_waiting && conn_entry_is_waiting(&conn->entry)) {
        set_waiting_now(conn); /* others are looked at before it */
    }
    conn_table_add(&budget->conns, &conn->entry, conn->host);
    net_server_take_another_place(conn->server_worker->server, n_tried);
}

void net_conn_evict(struct net_conn *conn) {
    bool is_open = conn->phase == NET_OPEN;
    conn->entry.called = false;
    if (conn->closed) {
        free_if_unused(conn);
    } else if (is_open && still_waits(conn)) {
        metric_add(METRIC_WAITING_CONNECTIONS_CLOSED_TOTAL, 1);
        log_closed_for_another(conn);
        net_conn_close(conn);
    } else if (is_open && has_left(conn)) {
        metric_add(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL, 1);
        net_conn_close(conn);
    } else if (is_open && (conn->entry.was_waiting || !still_idle(conn))) {
        keep_place(conn); /* one that waited was busy meanwhile, even if it is idle now */
    } else if (conn->phase == NET_LINGER && net_conn_is_sending(conn)) {
        keep_place(conn); /* the rest of a response, which the write timeout limits */
    } else if (is_open && conn->protocol->on_evict && !net_tls_in_handshake(conn)) {
        metric_add(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL, 1);
        conn->protocol->on_evict(conn);
        net_conn_update_io(conn);
    } else if (conn->phase != NET_CLOSED) {
        metric_add(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL, 1);
        net_conn_close(conn);
    }
}

/* Shuts down the write side and keeps reading: closing now could destroy the response on its way,
 * because the kernel answers bytes that arrive after a close with a reset. */
void net_conn_half_close(struct net_conn *conn) {
    uv_os_fd_t fd;
    assert(conn->phase == NET_LINGER && !net_conn_is_sending(conn));
    if (conn->tls) {
        net_tls_send_close_notify(conn);
    }
    if (conn->eof || conn->skip_linger) {
        net_conn_close(conn);
    } else if (uv_fileno(&conn->uv.handle, &fd) == 0) {
        shutdown(fd, SHUT_WR);
    }
}

void net_conn_close_gracefully(struct net_conn *conn, bool clean) {
    net_conn_flush(conn);
    if (conn->phase == NET_CLOSED) {
        return;
    }
    assert(conn->phase == NET_OPEN);
    conn->phase = NET_LINGER;
    conn->skip_linger = clean;
    conn->linger_end_ns = clock_now_ns() + LINGER_MAX_NS;
    pending_input_free(conn, conn->pending_input);
    conn->pending_input = NULL;
    if (!net_conn_is_sending(conn)) {
        net_conn_half_close(conn);
    }
}

/* ---- after an event -------------------------------------------------------------------------- */

static bool wants_to_read(const struct net_conn *conn) {
    if (conn->eof || conn->n_flushing > 0 || conn->pending_input || conn->turn.queued ||
        (conn->socket.held && conn->phase == NET_OPEN)) {
        return false;
    }
    return conn->phase == NET_LINGER || conn->protocol->wants_to_read(conn);
}

static enum net_timeout timeout_of(const struct net_conn *conn, bool *keep_running) {
    *keep_running = true;
    if (net_tls_in_handshake(conn) && conn->phase == NET_OPEN) {
        return NET_TIMEOUT_HEAD; /* one timeout for the whole handshake */
    }
    if (net_conn_is_sending(conn)) {
        return NET_TIMEOUT_WRITE;
    }
    *keep_running = false;
    return conn->phase == NET_LINGER ? NET_TIMEOUT_LINGER
                                     : conn->protocol->timeout_of(conn, keep_running);
}

/* Whether another connection may have its place. */
enum place {
    PLACE_KEPT,
    PLACE_IDLE,
    PLACE_WAITS, /* its requests may be waiting for the client; net_conn_evict looks closer */
};

static enum place place_of(const struct net_conn *conn, enum net_timeout timeout) {
    const struct net_protocol *protocol = conn->protocol;
    if (conn->over_limit) {
        return PLACE_KEPT;
    }
    switch (timeout) {
    case NET_TIMEOUT_IDLE:
    case NET_TIMEOUT_LINGER:
    case NET_TIMEOUT_HALF_CLOSED:
        return PLACE_IDLE;
    case NET_TIMEOUT_BODY:
    case NET_TIMEOUT_WRITE:
        return PLACE_WAITS;
    case NET_TIMEOUT_HEAD:
        if (!protocol->has_open_call || !protocol->has_open_call(conn)) {
            return PLACE_IDLE;
        }
        break;
    case NET_TIMEOUT_NONE:
        break;
    case NET_TIMEOUT_CLIENT:
    case NET_TIMEOUT_KEEPALIVE:
        return PLACE_KEPT;
    }
    return protocol->waits_for_client ? PLACE_WAITS : PLACE_KEPT;
}

/* A head that is not complete goes before idle connections, as it holds memory as well, and soon
 * (RELIEF_IDLE_NS): nearly all clients send it at once. */
static const uint64_t HEAD_AHEAD_NS = UINT64_C(900000000);

/* `idle_ns`: the time since which it is idle, if it is. */
static void update_entry(struct net_conn *conn, enum net_timeout timeout, uint64_t idle_ns) {
    enum place place = place_of(conn, timeout);
    if (timeout == NET_TIMEOUT_HEAD && !net_tls_in_handshake(conn)) {
        idle_ns -= idle_ns > HEAD_AHEAD_NS ? HEAD_AHEAD_NS : idle_ns - 1;
    }
    conn_entry_set_idle(&conn->entry, place == PLACE_IDLE ? idle_ns : CONN_BUSY);
    if (place != PLACE_WAITS) {
        conn_entry_set_waiting(&conn->entry, CONN_BUSY);
    } else if (!conn_entry_is_waiting(&conn->entry)) {
        set_waiting_now(conn);
    }
}

static void update_timer(struct net_conn *conn) {
    bool keep_running;
    uint64_t idle_ns;
    enum net_timeout timeout = timeout_of(conn, &keep_running);
    if (keep_running && conn->timeout.armed && conn->timeout.timer_class == timeout) {
        idle_ns = conn->timeout.due_ns - conn->server_worker->conn_timers.after_ns[timeout];
    } else if (timeout == NET_TIMEOUT_HALF_CLOSED && conn_entry_is_idle(&conn->entry)) {
        return; /* since then */
    } else {
        if (timeout == NET_TIMEOUT_WRITE) {
            conn->n_taken_at_arm = net_conn_taken_bytes(conn);
        }
        idle_ns = server_worker_set_conn_timer(conn->server_worker, conn, timeout);
    }
    update_entry(conn, timeout, idle_ns);
}

void net_conn_update_io(struct net_conn *conn) {
    if (conn->phase != NET_CLOSED) {
        net_conn_flush(conn);
    }
    if (conn->phase == NET_OPEN && net_tls_peer_has_closed(conn) && wants_to_read(conn)) {
        net_conn_handle_eof(conn, true); /* when the end of a plain connection would be read */
    }
    if (conn->phase == NET_LINGER && clock_now_ns() >= conn->linger_end_ns) {
        net_conn_close(conn);
    }
    if (conn->phase == NET_CLOSED) {
        return;
    }
    if (wants_to_read(conn)) {
        net_conn_read_start(conn);
    } else {
        net_conn_read_stop(conn);
    }
    if (!conn->reading || conn_socket_is_due(&conn->socket, conn->n_written, conn->account)) {
        conn_socket_update(conn);
    }
    update_timer(conn);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static void write_timed_out(struct net_conn *conn) {
    const struct net_limits *limits = &conn->server_worker->server->limits;
    uint64_t n_bytes = net_bytes_since(net_conn_taken_bytes(conn), conn->n_taken_at_arm);
    if (!net_write_is_fast_enough(n_bytes, limits->min_write_rate, limits->write_timeout_ns)) {
        net_conn_close(conn);
    } /* else net_conn_update_io starts the timer again */
}

/* Nothing is read while pipelined input waits for a response, so an end of file is not read either:
 * asks the kernel. */
static void check_client(struct net_conn *conn) {
    uv_os_fd_t fd;
    struct pollfd polled = {.events = POLLRDHUP};
    if (uv_fileno(&conn->uv.handle, &fd) != 0) {
        return;
    }
    polled.fd = fd;
    if (poll(&polled, 1, 0) == 1) {
        net_conn_handle_eof(conn, (polled.revents & (POLLERR | POLLHUP)) == 0);
    } else if (net_tls_peer_has_closed(conn)) {
        net_conn_handle_eof(conn, true);
    }
}

void net_conn_timed_out(struct net_conn *conn, enum net_timeout timeout) {
    switch (timeout) {
    case NET_TIMEOUT_HEAD:
    case NET_TIMEOUT_BODY:
        if (net_tls_in_handshake(conn)) {
            net_tls_handshake_failed(conn, TLS_FAILURE_TIMEOUT,
                                     "TLS handshake timed out (--header-timeout)");
            net_conn_close(conn);
        } else if (timeout == NET_TIMEOUT_HEAD ? !waits_for_turn(conn)
                                               : !net_conn_is_behind(conn)) {
            conn->protocol->on_timeout(conn, timeout);
        } /* else net_conn_update_io starts the timer again */
        break;
    case NET_TIMEOUT_WRITE:
        write_timed_out(conn);
        break;
    case NET_TIMEOUT_IDLE:
        if (conn->protocol->on_drain) {
            conn->protocol->on_drain(conn);
        } else {
            net_conn_close(conn);
        }
        break;
    case NET_TIMEOUT_CLIENT:
        check_client(conn);
        break;
    case NET_TIMEOUT_LINGER:
    case NET_TIMEOUT_KEEPALIVE:
    case NET_TIMEOUT_HALF_CLOSED:
    case NET_TIMEOUT_NONE:
        net_conn_close(conn);
        break;
    }
    net_conn_update_io(conn);
}

void net_conn_probe(struct net_conn *conn) {
    if (conn->received || !conn->reading || conn->phase != NET_OPEN) {
        conn->ping_sent = false; /* a client that is not read could not answer */
    } else if (!conn->ping_sent) {
        conn->ping_sent = true;
        conn->protocol->send_ping(conn);
    } else {
        metric_add(METRIC_KEEPALIVE_TIMEOUTS_TOTAL, 1);
        net_conn_close(conn);
        return;
    }
    start_keepalive(conn);
}

/* ---- for the log ----------------------------------------------------------------------------- */

const char *net_conn_peer(const struct net_conn *conn, char out[ADDRESS_TEXT_BYTES]) {
    struct address address = {.len = sizeof(address.storage)};
    struct ucred cred;
    socklen_t len = sizeof(cred);
    uv_os_fd_t fd;
    snprintf(out, ADDRESS_TEXT_BYTES, "unknown");
    if (uv_fileno(&conn->uv.handle, &fd) != 0) {
        return out;
    }
    if (!conn->is_unix) {
        if (getpeername(fd, (struct sockaddr *)&address.storage, &address.len) == 0) {
            address_print(&address, out);
        }
    } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0) {
        snprintf(out, ADDRESS_TEXT_BYTES, "unix:pid %ld", (long)cred.pid);
    }
    return out;
}
