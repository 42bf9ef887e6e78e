/* The life of a connection of any protocol: opened, watched by its timeouts, closed gracefully or
 * at once, and freed. */
#include "net/server/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/server/conn_limit.h"
#include "net/server/conn_write.h"
#include "net/server/tls/conn.h"

/* Upper bound of the linger, however fast the peer sends. */
static const uint64_t LINGER_MAX_NS = 30000000000u;

/* ---- opening and closing --------------------------------------------------------------------- */

void net_conn_free_if_unused(struct net_conn *conn) {
    if (conn->closed && !conn->entry.called && !conn->held) {
        free(conn);
    }
}

static void conn_free(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    struct net_budget *budget = server_worker->server->budget;
    bool is_admitted = conn->admission == NET_ADMITTED;
    assert(!conn->turn.queued && !conn->slice_due);
    atomic_fetch_sub_explicit(&server_worker->n_assigned_conns, 1, memory_order_relaxed);
    bool has_place = conn_table_remove(&budget->conns, &conn->entry,
                                       is_admitted ? &budget->n_conns : &budget->n_refused);
    if (!has_place) {
        atomic_fetch_sub_explicit(&budget->n_leaving, 1, memory_order_relaxed);
    }
    if (is_admitted) {
        net_budget_give_conn(budget, conn->protocol->conn_memory_bytes);
    }
    net_tls_free(conn);
    net_conn_drop_pending(conn);
    memory_account_close(conn->account);
    net_peer_unref(conn->peer);
    conn->closed = true;
    net_conn_free_if_unused(conn);
}

void net_conn_release(struct net_conn *conn) {
    conn->held = false;
    net_conn_free_if_unused(conn);
}

static void on_closed(uv_handle_t *handle) {
    struct net_conn *conn = handle->data;
    struct server_worker *server_worker = conn->server_worker;
    net_conn_cancel_writes(conn);
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

/* The connection is as old as it may be: it takes no new requests, and is closed after the
 * grace. */
static void on_age(struct timer *timer) {
    struct net_conn *conn = CONTAINER_OF(timer, struct net_conn, age);
    struct server_worker *server_worker = conn->server_worker;
    uint64_t grace_ns = server_worker->server->limits.age_grace_ns;
    if (conn->is_aged || conn->phase != NET_OPEN || !conn->protocol->on_drain) {
        net_conn_close(conn);
        return;
    }
    conn->is_aged = true;
    conn->protocol->on_drain(conn);
    if (conn->phase == NET_OPEN && grace_ns > 0) {
        timer_start(worker_timers(server_worker->worker), &conn->age,
                    clock_after_ns(clock_now_ns(), grace_ns));
    }
    net_conn_update_io(conn);
    server_worker_free_ended_calls(server_worker);
}

/* Each has an age of its own, so that those which began together do not all return at once. */
static void start_age(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    uint64_t most_ns = server_worker->server->limits.max_age_ns;
    if (most_ns > 0 && conn->phase == NET_OPEN) {
        uint64_t age_ns = net_age_with_jitter(&server_worker->prng, most_ns);
        conn->age.on_expire = on_age;
        timer_start(worker_timers(server_worker->worker), &conn->age,
                    clock_after_ns(clock_now_ns(), age_ns));
    }
}

void net_conn_reject(struct net_conn *conn) {
    struct error err;
    metric_add(METRIC_CONNECTIONS_REFUSED_TOTAL, 1);
    const struct net_budget *budget = conn->server_worker->server->budget;
    if (conn->admission == NET_OVER_LIMIT) {
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
    bool is_admitted = conn->admission == NET_ADMITTED;
    int rc = handle_open(conn);
    if (rc != 0) {
        close(conn->fd);
    } else if (is_admitted) { /* one that is refused has no place */
        conn_entry_set_fd(&conn->entry, conn->fd);
    }
    conn->fd = -1;
    conn->peer = net_peer_new(conn->host);
    conn->account =
        conn->peer ? memory_account_new(&server_worker->memory.quota, conn->peer) : NULL;
    memory_conn_count_base(conn->account, is_admitted ? conn->protocol->conn_memory_bytes : 0);
    server_worker_add_conn(server_worker, conn);
    metric_add(METRIC_CONNECTIONS, 1);
    metric_add(METRIC_CONNECTIONS_TOTAL, 1);
    if (rc != 0 || !conn->account || (conn->tls && !net_tls_open(conn))) {
        net_conn_close(conn);
    } else if (!is_admitted && !conn->tls) {
        net_conn_reject(conn);
    } /* over TLS: after the handshake */
    start_keepalive(conn);
    start_age(conn);
    net_conn_update_io(conn);
}

static void stop_timers(struct net_conn *conn) {
    struct timer_list *timers = &conn->server_worker->conn_timers;
    timer_list_stop(timers, &conn->timeout);
    timer_list_stop(timers, &conn->keepalive);
    timer_stop(worker_timers(conn->server_worker->worker), &conn->age);
}

bool net_conn_move(struct net_conn *conn, struct net_server *to) {
    struct server_worker *from = conn->server_worker;
    struct server_worker *server_worker = &to->workers[server_worker_index(from)];
    const struct net_protocol *protocol = to->protocol;
    assert(conn->phase == NET_OPEN && conn->n_written == 0 && !conn->pending_input);
    assert(server_worker->worker == from->worker && to->budget == from->server->budget);
    assert(protocol->conn_bytes <= from->server->conn_bytes);
    if (server_worker->stopping || !server_worker_start(server_worker)) {
        net_conn_close(conn);
        return false;
    }
    uint64_t n_more_bytes = protocol->conn_memory_bytes - conn->protocol->conn_memory_bytes;
    bool fits = net_conn_limit_extend(conn, n_more_bytes);
    stop_timers(conn);
    conn_socket_end(conn);
    server_worker_remove_conn(from, conn);
    atomic_fetch_sub_explicit(&from->n_assigned_conns, 1, memory_order_relaxed);
    memory_account_move(conn->account, &server_worker->memory.quota);
    memory_conn_count_base(conn->account, n_more_bytes);
    conn->protocol = protocol;
    conn->server_worker = server_worker;
    memset((char *)conn + sizeof(*conn), 0, protocol->conn_bytes - sizeof(*conn));
    if (protocol->init) {
        protocol->init(conn);
    }
    server_worker_add_conn(server_worker, conn);
    atomic_fetch_add_explicit(&server_worker->n_assigned_conns, 1, memory_order_relaxed);
    start_keepalive(conn);
    start_age(conn);
    if (conn->tls && !net_tls_open(conn)) {
        net_conn_close(conn);
    } else if (!fits) {
        net_conn_reject(conn);
    }
    return fits && conn->phase == NET_OPEN;
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
    stop_timers(conn);
    loop_iteration_end_wait(worker_loop_iteration(server_worker->worker), &conn->turn);
    if (server_worker->out_conn == conn) {
        server_worker->out_len = 0;
        server_worker->out_conn = NULL;
    }
    conn->protocol->on_close(conn);
    conn_entry_set_fd(&conn->entry, -1);
    uv_close(&conn->uv.handle, on_closed);
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
    net_conn_drop_pending(conn);
    if (!net_conn_is_sending(conn)) {
        net_conn_half_close(conn);
    }
}

/* ---- after an event -------------------------------------------------------------------------- */

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
    if (conn->admission != NET_ADMITTED) {
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
    case NET_TIMEOUT_PING:
        return PLACE_KEPT;
    }
    return protocol->waits_for_client ? PLACE_WAITS : PLACE_KEPT;
}

/* A head that is not complete goes before idle connections, as it holds memory as well, and soon
 * (RELIEF_IDLE_NS): nearly all clients send it at once. A new connection that was not read yet is
 * none: its head may wait in the kernel, as the server is late. */
static const uint64_t HEAD_AHEAD_NS = UINT64_C(900000000);

/* `idle_ns`: the time since which it is idle, if it is. */
static void update_entry(struct net_conn *conn, enum net_timeout timeout, uint64_t idle_ns) {
    enum place place = place_of(conn, timeout);
    if (timeout == NET_TIMEOUT_HEAD && !net_tls_in_handshake(conn) && conn->n_read > 0) {
        idle_ns -= idle_ns > HEAD_AHEAD_NS ? HEAD_AHEAD_NS : idle_ns - 1;
    }
    conn_entry_set_idle(&conn->entry, place == PLACE_IDLE ? idle_ns : CONN_BUSY);
    if (place != PLACE_WAITS) {
        conn_entry_set_waiting(&conn->entry, CONN_BUSY);
    } else if (!conn_entry_is_waiting(&conn->entry)) {
        net_conn_set_waiting_now(conn);
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
    if (conn->phase == NET_OPEN && net_tls_peer_has_closed(conn) && net_conn_wants_to_read(conn)) {
        net_conn_handle_eof(conn, true); /* when the end of a plain connection would be read */
    }
    if (conn->phase == NET_LINGER && clock_now_ns() >= conn->linger_end_ns) {
        net_conn_close(conn);
    }
    if (conn->phase == NET_CLOSED) {
        return;
    }
    bool wants_to_read = net_conn_wants_to_read(conn);
    if (wants_to_read != conn->reading) {
        net_conn_set_reading(conn, wants_to_read);
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

void net_conn_timed_out(struct net_conn *conn, enum net_timeout timeout) {
    switch (timeout) {
    case NET_TIMEOUT_HEAD:
    case NET_TIMEOUT_BODY:
        if (net_tls_in_handshake(conn)) {
            net_tls_handshake_failed(conn, TLS_FAILURE_TIMEOUT,
                                     "TLS handshake timed out (--header-timeout)");
            net_conn_close(conn);
        } else if (timeout == NET_TIMEOUT_HEAD ? !net_conn_waits_for_turn(conn)
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
        net_conn_check_client(conn);
        break;
    case NET_TIMEOUT_LINGER:
    case NET_TIMEOUT_KEEPALIVE:
    case NET_TIMEOUT_PING:
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
