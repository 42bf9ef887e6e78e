/* Bytes from the peer: read into the worker's buffer, or straight into a body, and handed to the
 * protocol, request after request in a loop. What comes while an answer is still being made waits
 * in the connection's stash; there is one, and while it is full nothing is read. It refuses to know
 * what the bytes mean. */
#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "net/server/server.h"
#include "net/server/tls/conn.h"

void net_conn_discard(struct net_conn *conn, struct str *data) {
    conn->discarded += data->len;
    *data = str_make(data->ptr + data->len, 0);
    if (conn->phase == NET_LINGER &&
        conn->discarded > conn->server_worker->server->limits.discard_size) {
        net_conn_close(conn);
    }
}

/* Returns: false when the bytes have to wait. */
static bool consume_step(struct net_conn *conn, struct str *data) {
    if (conn->phase == NET_OPEN) {
        return conn->protocol->on_bytes(conn, data);
    }
    net_conn_discard(conn, data);
    return true;
}

/* Returns: the bytes that have to wait. */
static struct str consume_input(struct net_conn *conn, struct str data) {
    assert(!conn->consuming);
    conn->consuming = true;
    while (data.len > 0 && consume_step(conn, &data)) {
        if (conn->server_worker->ended) {
            server_worker_free_ended_calls(conn->server_worker);
        }
    }
    conn->consuming = false;
    conn->n_pipelined_bytes = 0;
    return data;
}

/* ---- the stash ------------------------------------------------------------------------------- */

static void pending_input_copy(struct net_conn *conn, struct str data) {
    assert(!conn->pending_input && data.len <= NET_DECRYPTED_BYTES);
    conn->pending_input = malloc(data.len);
    if (!conn->pending_input) {
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

void net_conn_process_pending(struct net_conn *conn) {
    char *stash = conn->pending_input;
    if (!stash || conn->phase == NET_CLOSED) {
        return;
    }
    struct str data = str_make(stash + conn->pending_at, conn->pending_len - conn->pending_at);
    conn->pending_input = NULL;
    data = consume_input(conn, data);
    if (data.len > 0) {
        conn->pending_input = stash;
        conn->pending_at = conn->pending_len - data.len;
    } else {
        free(stash);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Where the protocol wants the next bytes; NULL: nowhere special. What is sealed has to be opened
 * first. */
static char *room(struct net_conn *conn, size_t *n_bytes) {
    bool plain = conn->phase == NET_OPEN && !conn->tls;
    return plain ? conn->protocol->read_buffer(conn, n_bytes) : NULL;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct net_conn *conn = handle->data;
    size_t n_bytes = NET_READ_BYTES;
    char *place = room(conn, &n_bytes);
    (void)suggested;
    buf->base = place ? place : conn->server_worker->in;
    buf->len = n_bytes;
}

void net_conn_handle_eof(struct net_conn *conn, bool half_closed) {
    conn->eof = true;
    conn->reading = false; /* libuv has stopped by itself */
    if (net_tls_in_handshake(conn) && conn->phase == NET_OPEN) {
        net_tls_handshake_failed(conn, TLS_FAILURE_DISCONNECTED,
                                 "the client went away within the handshake");
        half_closed = false;
    }
    if (conn->phase != NET_OPEN || !half_closed || !conn->protocol->on_eof(conn)) {
        net_conn_close(conn);
    }
}

/* Is what looks like the end of the input the end of the connection? libuv reports a reset as an
 * end when bytes arrived before it; only the kernel knows that nobody can be answered any more. */
static bool is_reset(const struct net_conn *conn) {
    uv_os_fd_t fd;
    if (uv_fileno(&conn->uv.handle, &fd) != 0) {
        return true;
    }
    struct pollfd polled = {.fd = fd};
    return poll(&polled, 1, 0) == 1 && (polled.revents & (POLLERR | POLLHUP)) != 0;
}

/* A full buffer that is no plain body is work (many requests, or a text to decompress), and libuv
 * would read on at once: others have their turn first. */
static void yield_to_other_conns(struct net_conn *conn, ssize_t n_read) {
    const struct net_protocol *protocol = conn->protocol;
    size_t n_bytes;
    if (n_read == NET_READ_BYTES && conn->phase == NET_OPEN && !room(conn, &n_bytes) &&
        !(protocol->is_receiving_bulk && protocol->is_receiving_bulk(conn))) {
        server_worker_schedule_resume(conn->server_worker, conn);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf) {
    struct net_conn *conn = stream->data;
    struct server_worker *server_worker = conn->server_worker;
    if (n_read == 0) {
        return; /* nothing there after all */
    }
    if (n_read < 0) {
        net_conn_handle_eof(conn, n_read == UV_EOF && !is_reset(conn));
    } else {
        metric_add(METRIC_RECEIVED_BYTES_TOTAL, n_read);
        if (buf->base != server_worker->in) {
            conn->protocol->on_read_buffer_filled(conn, (size_t)n_read);
            server_worker_free_ended_calls(server_worker);
        } else {
            struct str data = str_make(buf->base, (size_t)n_read);
            if (conn->tls) {
                net_tls_receive(conn, data);
            } else {
                net_conn_process_input(conn, data);
            }
            yield_to_other_conns(conn, n_read);
        }
    }
    net_conn_update_io(conn);
    if (loop_iteration_run_if_full(worker_loop_iteration(server_worker->worker))) {
        server_worker_run_deferred(server_worker);
    }
}

void net_conn_read_start(struct net_conn *conn) {
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
