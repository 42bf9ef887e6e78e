/* A connection of any protocol: its opening, what it waits for and for how long, its linger and its
 * end. It refuses to look at bytes: conn_read.c and conn_write.c do. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/server/server.h"
#include "net/server/tls/conn.h"

/* The whole of a linger, however busily the peer sends. */
static const uint64_t LINGER_MOST_NS = 30000000000u;

/* ---- opening and closing --------------------------------------------------------------------- */

static void conn_free(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    atomic_fetch_sub_explicit(&server_worker->n_assigned_conns, 1, memory_order_relaxed);
    net_budget_remove_conn(server_worker->server->budget);
    net_tls_free(conn);
    free(conn->pending_input);
    free(conn);
}

static void on_closed(uv_handle_t *handle) {
    struct net_conn *conn = handle->data;
    struct server_worker *server_worker = conn->server_worker;
    net_tls_cancel_writes(conn);
    server_worker_remove_conn(server_worker, conn);
    metric_add(METRIC_CONNECTIONS, -1);
    conn_free(conn);
    server_worker_schedule_deferred(server_worker);
}

/* Returns: 0, or libuv's error; the descriptor is the handle's then. */
static int handle_open(struct net_conn *conn) {
    uv_loop_t *loop = worker_loop(conn->server_worker->worker);
    int rc;
    if (conn->is_unix) {
        uv_pipe_init(loop, &conn->uv.pipe, 0); /* the inits cannot fail */
        rc = uv_pipe_open(&conn->uv.pipe, conn->fd);
    } else {
        uv_tcp_init(loop, &conn->uv.tcp);
        rc = uv_tcp_open(&conn->uv.tcp, conn->fd);
    }
    conn->uv.handle.data = conn;
    return rc;
}

void net_conn_reject(struct net_conn *conn) {
    struct error err;
    error_set(&err, ST_TOO_MANY_CONNECTIONS,
              "this server takes at most %llu connections (--max-connections)",
              (unsigned long long)conn->server_worker->server->budget->max_connections);
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
    }
    conn->fd = -1;
    server_worker_add_conn(server_worker, conn);
    metric_add(METRIC_CONNECTIONS, 1);
    metric_add(METRIC_CONNECTIONS_TOTAL, 1);
    if (rc != 0 || (conn->tls && !net_tls_open(conn))) {
        net_conn_close(conn);
    } else if (conn->over_limit && !conn->tls) {
        net_conn_reject(conn);
    } /* over TLS: once it can be told */
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
    timer_list_stop(&server_worker->conn_timers, &conn->timeout);
    if (server_worker->out_conn == conn) {
        server_worker->out_len = 0;
        server_worker->out_conn = NULL;
    }
    conn->protocol->on_close(conn);
    uv_close(&conn->uv.handle, on_closed);
}

/* Says that nothing more comes and lets the peer finish: closing now could destroy the answer on
 * its way, because the kernel answers bytes that come after a close with a reset. */
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
    conn->linger_end_ns = clock_now_ns() + LINGER_MOST_NS;
    free(conn->pending_input);
    conn->pending_input = NULL;
    if (!net_conn_is_sending(conn)) {
        net_conn_half_close(conn);
    }
}

/* ---- after an event -------------------------------------------------------------------------- */

static bool wants_to_read(const struct net_conn *conn) {
    if (conn->eof || conn->n_flushing > 0 || conn->pending_input || conn->ready) {
        return false;
    }
    return conn->phase == NET_LINGER || conn->protocol->wants_to_read(conn);
}

static enum net_timeout timeout_of(const struct net_conn *conn, bool *keep_running) {
    *keep_running = true;
    if (net_tls_in_handshake(conn) && conn->phase == NET_OPEN) {
        return NET_TIMEOUT_HEAD; /* the whole of a handshake has as long as a head */
    }
    if (net_conn_is_sending(conn)) {
        return NET_TIMEOUT_WRITE;
    }
    *keep_running = false;
    return conn->phase == NET_LINGER ? NET_TIMEOUT_LINGER
                                     : conn->protocol->timeout_of(conn, keep_running);
}

static void update_timer(struct net_conn *conn) {
    bool keep_running;
    enum net_timeout timeout = timeout_of(conn, &keep_running);
    if (keep_running && conn->timeout.armed && conn->timeout.timer_class == timeout) {
        return;
    }
    if (timeout == NET_TIMEOUT_WRITE) {
        conn->unsent_at_arm = net_conn_unsent_bytes(conn);
    }
    server_worker_set_conn_timer(conn->server_worker, conn, timeout);
}

void net_conn_update_io(struct net_conn *conn) {
    if (conn->phase != NET_CLOSED) {
        net_conn_flush(conn);
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
    update_timer(conn);
}

/* ---- when nothing happens -------------------------------------------------------------------- */

static void write_timed_out(struct net_conn *conn) {
    if (net_conn_unsent_bytes(conn) == conn->unsent_at_arm) {
        net_conn_close(conn);
    } /* else something was taken: settle arms it again */
}

void net_conn_timed_out(struct net_conn *conn, enum net_timeout timeout) {
    switch (timeout) {
    case NET_TIMEOUT_HEAD:
    case NET_TIMEOUT_BODY:
        if (net_tls_in_handshake(conn)) {
            net_tls_handshake_failed(conn, TLS_FAILURE_TIMEOUT,
                                     "the handshake was not over in time (--header-timeout)");
            net_conn_close(conn);
        } else {
            conn->protocol->on_timeout(conn, timeout);
        }
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
    case NET_TIMEOUT_LINGER:
    case NET_TIMEOUT_NONE:
        net_conn_close(conn);
        break;
    }
    net_conn_update_io(conn);
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
