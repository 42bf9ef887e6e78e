/* What one worker has of the server: its connections, its timer, its buffers. A turn is one event
 * of the loop with everything that follows from it; what must not happen inside a callback (freeing
 * calls, going on with a stash, ending the shard) is done when the turn ends. */

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "core/event/clock.h"
#include "net/server/call.h"
#include "net/server/tls/conn.h"

static const uint64_t LINGER_NS = 5000000000u; /* between two pieces of what is dropped */

/* ---- turns ----------------------------------------------------------------------------------- */

void server_worker_free_ended_calls(struct server_worker *server_worker) {
    while (server_worker->ended) {
        struct net_call *call = server_worker->ended;
        server_worker->ended = call->ended_next;
        arena_free(call->reply_arena);
        arena_free(call->arena); /* with the call itself */
    }
}

void server_worker_schedule_resume(struct server_worker *server_worker, struct net_conn *conn) {
    if (conn->ready) {
        return;
    }
    conn->ready = true;
    conn->next_ready = NULL;
    if (server_worker->ready) {
        server_worker->ready_last->next_ready = conn;
    } else {
        server_worker->ready = conn;
    }
    server_worker->ready_last = conn;
    server_worker_schedule_deferred(server_worker);
}

static struct net_conn *ready_take(struct server_worker *server_worker) {
    struct net_conn *conn = server_worker->ready;
    server_worker->ready = conn->next_ready;
    conn->ready = false;
    return conn;
}

static void on_worker_handle_closed(uv_handle_t *handle) {
    struct server_worker *server_worker = handle->data;
    if (--server_worker->n_handles == 0) {
        worker_post(server_worker->server->acceptor, &server_worker->done_msg);
    }
}

static void run_done(struct worker_msg *msg) {
    struct server_worker *server_worker =
        (struct server_worker *)(void *)((char *)msg - offsetof(struct server_worker, done_msg));
    net_server_on_worker_stopped(server_worker->server);
}

/* The shard ends when nothing is left that it has to answer for. */
static void close_if_done(struct server_worker *server_worker) {
    if (!server_worker->stopping || server_worker->done || server_worker->n_conns > 0 ||
        server_worker->n_calls > 0) {
        return;
    }
    server_worker->done = true;
    if (!server_worker->started) {
        worker_post(server_worker->server->acceptor, &server_worker->done_msg);
        return;
    }
    body_pool_fini(&server_worker->pool);
    uv_close((uv_handle_t *)&server_worker->timer, on_worker_handle_closed);
    uv_close((uv_handle_t *)&server_worker->check, on_worker_handle_closed);
    uv_close((uv_handle_t *)&server_worker->idle, on_worker_handle_closed);
}

/* Has the client sent something that was not read yet? Then it is answered before the end. */
static bool has_unread(const struct net_conn *conn) {
    uv_os_fd_t fd;
    char byte;
    return uv_fileno(&conn->uv.handle, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static bool is_idle(const struct net_conn *conn) {
    return conn->phase == NET_OPEN && !net_conn_is_sending(conn) && !conn->pending_input &&
           !net_tls_in_handshake(conn) && conn->protocol->is_idle(conn);
}

static void run_drain(struct worker_msg *msg) {
    struct server_worker *server_worker =
        (struct server_worker *)(void *)((char *)msg - offsetof(struct server_worker, drain_msg));
    for (struct net_conn *conn = server_worker->conns; conn; conn = conn->next) {
        if (conn->phase == NET_OPEN && conn->protocol->on_drain) {
            conn->protocol->on_drain(conn);
            net_conn_update_io(conn);
        } else if (is_idle(conn) && !has_unread(conn)) {
            net_conn_close(conn);
        }
    }
}

static void run_stop(struct worker_msg *msg) {
    struct server_worker *server_worker =
        (struct server_worker *)(void *)((char *)msg - offsetof(struct server_worker, stop_msg));
    server_worker->stopping = true;
    for (struct net_conn *conn = server_worker->conns; conn; conn = conn->next) {
        net_conn_close(conn); /* it leaves the list when its handle is closed */
    }
    if (server_worker->started) {
        server_worker_schedule_deferred(server_worker);
    } else {
        close_if_done(server_worker);
    }
}

void server_worker_run_deferred(struct server_worker *server_worker) {
    const struct net_protocol *protocol = server_worker->server->protocol;
    if (!server_worker->idle_active) {
        return;
    }
    bool again = protocol->run_deferred && protocol->run_deferred(server_worker);
    server_worker_free_ended_calls(server_worker);
    while (server_worker->ready) {
        struct net_conn *conn = ready_take(server_worker);
        net_conn_process_pending(conn);
        net_conn_update_io(conn);
        server_worker_free_ended_calls(server_worker);
    }
    if (!again) {
        server_worker->idle_active = false;
        uv_idle_stop(&server_worker->idle);
    }
    close_if_done(server_worker);
}

static void on_check(uv_check_t *check) {
    server_worker_run_deferred(check->data);
}

static void on_idle(uv_idle_t *idle) {
    server_worker_run_deferred(idle->data);
}

void server_worker_schedule_deferred(struct server_worker *server_worker) {
    if (!server_worker->idle_active && !server_worker->done) {
        server_worker->idle_active = true;
        uv_idle_start(&server_worker->idle, on_idle);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

void server_worker_schedule_timer(struct server_worker *server_worker, uint64_t due_ns) {
    if (due_ns >= server_worker->timer_due_ns || server_worker->done) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    server_worker->timer_due_ns = due_ns;
    uv_update_time(worker_loop(server_worker->worker));
    uv_timer_start(&server_worker->timer, on_timer, delay_ns / 1000000 + 1, 0);
}

void server_worker_set_conn_timer(struct server_worker *server_worker, struct net_conn *conn,
                                  enum net_timeout timeout) {
    if (timeout == NET_TIMEOUT_NONE) {
        timer_list_stop(&server_worker->conn_timers, &conn->timeout);
        return;
    }
    timer_list_start(&server_worker->conn_timers, &conn->timeout, (uint8_t)timeout, clock_now_ns());
    if (conn->timeout.armed) {
        server_worker_schedule_timer(server_worker, conn->timeout.due_ns);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct server_worker *server_worker = timer->data;
    uint64_t now_ns = clock_now_ns();
    struct list_timer *due;
    server_worker->timer_due_ns = UINT64_MAX;
    while ((due = timer_list_pop_due(&server_worker->conn_timers, now_ns))) {
        struct net_conn *conn =
            (struct net_conn *)(void *)((char *)due - offsetof(struct net_conn, timeout));
        net_conn_timed_out(conn, (enum net_timeout)due->timer_class);
    }
    if (server_worker->server->protocol->on_timer) {
        server_worker->server->protocol->on_timer(server_worker, now_ns);
    }
    server_worker_schedule_timer(server_worker, body_pool_trim(&server_worker->pool, now_ns));
    server_worker_schedule_timer(server_worker, timer_list_next_ns(&server_worker->conn_timers));
}

/* ---- a shard's life ------------------------------------------------------------------------- */

void server_worker_init(struct server_worker *server_worker, struct net_server *server,
                        struct worker *worker) {
    const struct net_limits *limits = &server->limits;
    *server_worker = (struct server_worker){
        .server = server,
        .worker = worker,
        .timer_due_ns = UINT64_MAX,
        .drain_msg.run = run_drain,
        .stop_msg.run = run_stop,
        .done_msg.run = run_done,
        .conn_timers = {.after_ns = {[NET_TIMEOUT_IDLE] = limits->idle_timeout_ns,
                                     [NET_TIMEOUT_HEAD] = limits->header_timeout_ns,
                                     [NET_TIMEOUT_BODY] = limits->body_timeout_ns,
                                     [NET_TIMEOUT_WRITE] = limits->write_timeout_ns,
                                     [NET_TIMEOUT_LINGER] = LINGER_NS}},
    };
}

void server_worker_fini(struct server_worker *server_worker) {
    assert(server_worker->n_conns == 0 && server_worker->n_calls == 0 && !server_worker->ended);
    free(server_worker->tls);
    free(server_worker->in);
    free(server_worker->out);
}

/* ---- connections ----------------------------------------------------------------------------- */

bool server_worker_start(struct server_worker *server_worker) {
    uv_loop_t *loop = worker_loop(server_worker->worker);
    if (server_worker->started) {
        return true;
    }
    free(server_worker->in);
    free(server_worker->out);
    server_worker->in = malloc(NET_READ_BYTES);
    server_worker->out = malloc(NET_COALESCE_BUFFER_BYTES);
    if (!server_worker->in || !server_worker->out) {
        return false;
    }
    /* Half of what bodies may take is worth keeping between them. */
    const struct net_server *server = server_worker->server;
    uint64_t kept = server->budget->body_memory / 2 / server->n_workers;
    body_pool_init(&server_worker->pool, kept < SIZE_MAX ? (size_t)kept : SIZE_MAX);
    uv_timer_init(loop, &server_worker->timer); /* these cannot fail */
    uv_check_init(loop, &server_worker->check);
    uv_idle_init(loop, &server_worker->idle);
    server_worker->timer.data = server_worker;
    server_worker->check.data = server_worker;
    server_worker->idle.data = server_worker;
    server_worker->n_handles = 3;
    uv_check_start(&server_worker->check, on_check);
    server_worker->started = true;
    return true;
}

void server_worker_add_conn(struct server_worker *server_worker, struct net_conn *conn) {
    conn->prev = NULL;
    conn->next = server_worker->conns;
    if (conn->next) {
        conn->next->prev = conn;
    }
    server_worker->conns = conn;
    server_worker->n_conns++;
}

void server_worker_remove_conn(struct server_worker *server_worker, struct net_conn *conn) {
    struct net_conn **before = conn->prev ? &conn->prev->next : &server_worker->conns;
    *before = conn->next;
    if (conn->next) {
        conn->next->prev = conn->prev;
    }
    server_worker->n_conns--;
}
