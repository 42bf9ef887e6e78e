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

void net_shard_sweep(struct net_shard *shard) {
    while (shard->ended) {
        struct net_call *call = shard->ended;
        shard->ended = call->ended_next;
        arena_free(call->spare);
        arena_free(call->arena); /* with the call itself */
    }
}

void net_shard_make_ready(struct net_shard *shard, struct net_conn *conn) {
    if (conn->ready) {
        return;
    }
    conn->ready = true;
    conn->ready_next = NULL;
    if (shard->ready) {
        shard->ready_last->ready_next = conn;
    } else {
        shard->ready = conn;
    }
    shard->ready_last = conn;
    net_shard_ask_turn(shard);
}

static struct net_conn *ready_take(struct net_shard *shard) {
    struct net_conn *conn = shard->ready;
    shard->ready = conn->ready_next;
    conn->ready = false;
    return conn;
}

static void on_shard_closed(uv_handle_t *handle) {
    struct net_shard *shard = handle->data;
    if (--shard->n_handles == 0) {
        worker_post(shard->server->acceptor, &shard->done_msg);
    }
}

static void run_done(struct worker_msg *msg) {
    struct net_shard *shard =
        (struct net_shard *)(void *)((char *)msg - offsetof(struct net_shard, done_msg));
    net_server_shard_done(shard->server);
}

/* The shard ends when nothing is left that it has to answer for. */
static void end_if_over(struct net_shard *shard) {
    if (!shard->stopping || shard->done || shard->n_conns > 0 || shard->n_calls > 0) {
        return;
    }
    shard->done = true;
    if (!shard->begun) {
        worker_post(shard->server->acceptor, &shard->done_msg);
        return;
    }
    body_pool_fini(&shard->pool);
    uv_close((uv_handle_t *)&shard->timer, on_shard_closed);
    uv_close((uv_handle_t *)&shard->check, on_shard_closed);
    uv_close((uv_handle_t *)&shard->idle, on_shard_closed);
}

/* Has the client sent something that was not read yet? Then it is answered before the end. */
static bool has_unread(const struct net_conn *conn) {
    uv_os_fd_t fd;
    char byte;
    return uv_fileno(&conn->uv.handle, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static bool is_idle(const struct net_conn *conn) {
    return conn->phase == NET_OPEN && !net_conn_is_sending(conn) && !conn->stash &&
           !net_tls_is_shaking(conn) && conn->protocol->is_idle(conn);
}

static void run_drain(struct worker_msg *msg) {
    struct net_shard *shard =
        (struct net_shard *)(void *)((char *)msg - offsetof(struct net_shard, drain_msg));
    for (struct net_conn *conn = shard->conns; conn; conn = conn->next) {
        if (conn->phase == NET_OPEN && conn->protocol->on_drain) {
            conn->protocol->on_drain(conn);
            net_conn_settle(conn);
        } else if (is_idle(conn) && !has_unread(conn)) {
            net_conn_close(conn);
        }
    }
}

static void run_stop(struct worker_msg *msg) {
    struct net_shard *shard =
        (struct net_shard *)(void *)((char *)msg - offsetof(struct net_shard, stop_msg));
    shard->stopping = true;
    for (struct net_conn *conn = shard->conns; conn; conn = conn->next) {
        net_conn_close(conn); /* it leaves the list when its handle is closed */
    }
    if (shard->begun) {
        net_shard_ask_turn(shard);
    } else {
        end_if_over(shard);
    }
}

void net_shard_end_turn(struct net_shard *shard) {
    const struct net_protocol *protocol = shard->server->protocol;
    if (!shard->idling) {
        return;
    }
    bool again = protocol->on_turn && protocol->on_turn(shard);
    net_shard_sweep(shard);
    while (shard->ready) {
        struct net_conn *conn = ready_take(shard);
        net_conn_run_stash(conn);
        net_conn_settle(conn);
        net_shard_sweep(shard);
    }
    if (!again) {
        shard->idling = false;
        uv_idle_stop(&shard->idle);
    }
    end_if_over(shard);
}

static void on_check(uv_check_t *check) {
    net_shard_end_turn(check->data);
}

static void on_idle(uv_idle_t *idle) {
    net_shard_end_turn(idle->data);
}

void net_shard_ask_turn(struct net_shard *shard) {
    if (!shard->idling && !shard->done) {
        shard->idling = true;
        uv_idle_start(&shard->idle, on_idle);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

void net_shard_wake_at(struct net_shard *shard, uint64_t due_ns) {
    if (due_ns >= shard->timer_due_ns || shard->done) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    shard->timer_due_ns = due_ns;
    uv_update_time(worker_loop(shard->worker));
    uv_timer_start(&shard->timer, on_timer, delay_ns / 1000000 + 1, 0);
}

void net_shard_arm(struct net_shard *shard, struct net_conn *conn, enum net_timeout timeout) {
    if (timeout == NET_TIMEOUT_NONE) {
        timeouts_disarm(&shard->timeouts, &conn->timeout);
        return;
    }
    timeouts_arm(&shard->timeouts, &conn->timeout, (uint8_t)timeout, clock_now_ns());
    if (conn->timeout.armed) {
        net_shard_wake_at(shard, conn->timeout.due_ns);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct net_shard *shard = timer->data;
    uint64_t now_ns = clock_now_ns();
    struct timeout *due;
    shard->timer_due_ns = UINT64_MAX;
    while ((due = timeouts_take_due(&shard->timeouts, now_ns))) {
        struct net_conn *conn =
            (struct net_conn *)(void *)((char *)due - offsetof(struct net_conn, timeout));
        net_conn_timed_out(conn, (enum net_timeout)due->klass);
    }
    if (shard->server->protocol->on_tick) {
        shard->server->protocol->on_tick(shard, now_ns);
    }
    net_shard_wake_at(shard, body_pool_trim(&shard->pool, now_ns));
    net_shard_wake_at(shard, timeouts_next_ns(&shard->timeouts));
}

/* ---- a shard's life ------------------------------------------------------------------------- */

void net_shard_init(struct net_shard *shard, struct net_server *server, struct worker *worker) {
    const struct net_limits *limits = &server->limits;
    *shard = (struct net_shard){
        .server = server,
        .worker = worker,
        .timer_due_ns = UINT64_MAX,
        .drain_msg.run = run_drain,
        .stop_msg.run = run_stop,
        .done_msg.run = run_done,
        .timeouts = {.after_ns = {[NET_TIMEOUT_IDLE] = limits->idle_timeout_ns,
                                  [NET_TIMEOUT_HEAD] = limits->header_timeout_ns,
                                  [NET_TIMEOUT_BODY] = limits->body_timeout_ns,
                                  [NET_TIMEOUT_WRITE] = limits->write_timeout_ns,
                                  [NET_TIMEOUT_LINGER] = LINGER_NS}},
    };
}

void net_shard_fini(struct net_shard *shard) {
    assert(shard->n_conns == 0 && shard->n_calls == 0 && !shard->ended);
    free(shard->tls);
    free(shard->in);
    free(shard->out);
}

/* ---- connections ----------------------------------------------------------------------------- */

bool net_shard_begin(struct net_shard *shard) {
    uv_loop_t *loop = worker_loop(shard->worker);
    if (shard->begun) {
        return true;
    }
    free(shard->in);
    free(shard->out);
    shard->in = malloc(NET_READ_BYTES);
    shard->out = malloc(NET_OUT_BYTES);
    if (!shard->in || !shard->out) {
        return false;
    }
    /* Half of what bodies may take is worth keeping between them. */
    const struct net_server *server = shard->server;
    uint64_t kept = server->budget->body_memory_bytes / 2 / server->n_shards;
    body_pool_init(&shard->pool, kept < SIZE_MAX ? (size_t)kept : SIZE_MAX);
    uv_timer_init(loop, &shard->timer); /* these cannot fail */
    uv_check_init(loop, &shard->check);
    uv_idle_init(loop, &shard->idle);
    shard->timer.data = shard;
    shard->check.data = shard;
    shard->idle.data = shard;
    shard->n_handles = 3;
    uv_check_start(&shard->check, on_check);
    shard->begun = true;
    return true;
}

void net_shard_add(struct net_shard *shard, struct net_conn *conn) {
    conn->prev = NULL;
    conn->next = shard->conns;
    if (conn->next) {
        conn->next->prev = conn;
    }
    shard->conns = conn;
    shard->n_conns++;
}

void net_shard_remove(struct net_shard *shard, struct net_conn *conn) {
    struct net_conn **before = conn->prev ? &conn->prev->next : &shard->conns;
    *before = conn->next;
    if (conn->next) {
        conn->next->prev = conn->prev;
    }
    shard->n_conns--;
}
