/* Bytes in: they are read into the worker's buffer, or straight into a body, and passed to the
 * protocol. Bytes that arrive while a response is pending are kept in the connection's one
 * pending-input buffer; while that is in use, nothing is read. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "net/server/conn.h"
#include "net/server/server.h"
#include "net/server/tls/conn.h"

enum { READ_BURST_BYTES = 512 * 1024 }; /* takes some 0.3 ms, with the page faults */

/* ---- to the protocol ------------------------------------------------------------------------- */

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

/* While no other connection waits, the end of the turn is checked once in so many steps, which are
 * heads and bodies. */
enum { CONSUME_STEPS = 8 };

/* Pipelined requests take turns with other connections: once the turn is over, the rest is pending.
 * Returns: the bytes that must wait. */
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
        if (data.len > 0 &&
            (++n_steps % CONSUME_STEPS == 0 || loop_iteration_n_turns(iteration) > 0) &&
            loop_iteration_turn_is_over(iteration, LOOP_EVENTS_NS)) {
            server_worker_schedule_resume(server_worker, conn);
            break;
        }
    }
    conn->consuming = false;
    conn->n_pipelined_bytes = 0;
    return data;
}

/* ---- pending input --------------------------------------------------------------------------- */

void net_conn_drop_pending(struct net_conn *conn) {
    if (conn->pending_input) {
        memory_conn_subtract(conn->account, MEMORY_CONN_BUFFERS, conn->pending_len);
        free(conn->pending_input);
        conn->pending_input = NULL;
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
    conn->pending_input = pending;
    if (data.len > 0) {
        conn->pending_at = conn->pending_len - data.len;
    } else {
        net_conn_drop_pending(conn);
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
static inline void read_buffer(struct net_conn *conn, const struct loop_iteration *iteration,
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
        net_conn_set_reading(conn, false);
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
             net_conn_wants_to_read(conn));
}

void net_conn_run_turn(struct loop_turn *turn) {
    struct net_conn *conn = CONTAINER_OF(turn, struct net_conn, turn);
    if (conn->phase != NET_CLOSED && is_reset(conn)) {
        net_conn_handle_eof(conn, false); /* what the client has sent is not worked for */
    } else if (conn->phase != NET_CLOSED && conn->pending_input) {
        process_pending(conn);
    } else if (conn->phase != NET_CLOSED && net_conn_wants_to_read(conn)) {
        read_now(conn);
    }
    net_conn_update_io(conn);
    server_worker_free_ended_calls(conn->server_worker);
}

void net_conn_set_reading(struct net_conn *conn, bool reads) {
    if (reads && !conn->reading) {
        conn->reading = uv_read_start(&conn->uv.stream, on_alloc, on_read) == 0;
    } else if (!reads && conn->reading) {
        uv_read_stop(&conn->uv.stream);
        conn->reading = false;
    }
}

bool net_conn_has_unread(const struct net_conn *conn) {
    uv_os_fd_t fd;
    char byte;
    return uv_fileno(&conn->uv.handle, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool net_conn_waits_for_turn(const struct net_conn *conn) {
    return conn->pending_input || conn->turn.queued;
}

bool net_conn_is_behind(const struct net_conn *conn) {
    return net_conn_waits_for_turn(conn) ||
           (net_conn_wants_to_read(conn) && net_conn_has_unread(conn));
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

void net_conn_check_client(struct net_conn *conn) {
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
