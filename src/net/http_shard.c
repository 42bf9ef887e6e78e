/* What one worker has of the server: its connections, its timer, its buffers. A turn is one event
 * of the loop with everything that follows from it; what must not happen inside a callback (freeing
 * calls, going on with a stash, ending the shard) is done when the turn ends. */
#include "net/http_conn.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "loop/clock.h"

static const uint64_t LINGER_NS = 5000000000u; /* between two pieces of what is dropped */

/* ---- turns ----------------------------------------------------------------------------------- */

void http_shard_sweep(struct http_shard *shard) {
    while (shard->ended) {
        struct http_call *call = shard->ended;
        shard->ended = call->ended_next;
        arena_free(call->spare);
        arena_free(call->exchange.arena);
    }
}

void http_shard_make_ready(struct http_shard *shard, struct http_conn *conn) {
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
    http_shard_ask_turn(shard);
}

static struct http_conn *ready_take(struct http_shard *shard) {
    struct http_conn *conn = shard->ready;
    shard->ready = conn->ready_next;
    conn->ready = false;
    return conn;
}

static void on_shard_closed(uv_handle_t *handle) {
    struct http_shard *shard = handle->data;
    if (--shard->n_handles == 0) {
        worker_post(shard->server->acceptor, &shard->done_msg);
    }
}

static void run_done(struct worker_msg *msg) {
    struct http_shard *shard =
        (struct http_shard *)(void *)((char *)msg - offsetof(struct http_shard, done_msg));
    http_server_shard_done(shard->server);
}

/* The shard ends when nothing is left that it has to answer for. */
static void end_if_over(struct http_shard *shard) {
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
static bool has_unread(const struct http_conn *conn) {
    uv_os_fd_t fd;
    char byte;
    return uv_fileno(&conn->uv.handle, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void run_drain(struct worker_msg *msg) {
    struct http_shard *shard =
        (struct http_shard *)(void *)((char *)msg - offsetof(struct http_shard, drain_msg));
    for (struct http_conn *conn = shard->conns; conn; conn = conn->next) {
        bool idle = conn->state == HTTP_CONN_IDLE && !conn->flushing && !conn->stash;
        if (idle && !has_unread(conn)) {
            http_conn_close(conn);
        }
    }
}

static void run_stop(struct worker_msg *msg) {
    struct http_shard *shard =
        (struct http_shard *)(void *)((char *)msg - offsetof(struct http_shard, stop_msg));
    shard->stopping = true;
    for (struct http_conn *conn = shard->conns; conn; conn = conn->next) {
        http_conn_close(conn); /* it leaves the list when its handle is closed */
    }
    if (shard->begun) {
        http_shard_ask_turn(shard);
    } else {
        end_if_over(shard);
    }
}

static void turn_end(struct http_shard *shard) {
    if (!shard->idling) {
        return;
    }
    http_shard_sweep(shard);
    while (shard->ready) {
        struct http_conn *conn = ready_take(shard);
        http_conn_run_stash(conn);
        http_conn_settle(conn);
        http_shard_sweep(shard);
    }
    shard->idling = false;
    uv_idle_stop(&shard->idle);
    end_if_over(shard);
}

static void on_check(uv_check_t *check) {
    turn_end(check->data);
}

static void on_idle(uv_idle_t *idle) {
    turn_end(idle->data);
}

void http_shard_ask_turn(struct http_shard *shard) {
    if (!shard->idling && !shard->done) {
        shard->idling = true;
        uv_idle_start(&shard->idle, on_idle);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

void http_shard_wake_at(struct http_shard *shard, uint64_t due_ns) {
    if (due_ns >= shard->timer_due_ns || shard->done) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    shard->timer_due_ns = due_ns;
    uv_update_time(worker_loop(shard->worker));
    uv_timer_start(&shard->timer, on_timer, delay_ns / 1000000 + 1, 0);
}

void http_shard_arm(struct http_shard *shard, struct http_conn *conn, enum http_timeout timeout) {
    if (timeout == HTTP_TIMEOUT_NONE) {
        timeouts_disarm(&shard->timeouts, &conn->timeout);
        return;
    }
    timeouts_arm(&shard->timeouts, &conn->timeout, (uint8_t)timeout, clock_now_ns());
    if (conn->timeout.armed) {
        http_shard_wake_at(shard, conn->timeout.due_ns);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct http_shard *shard = timer->data;
    uint64_t now_ns = clock_now_ns();
    struct timeout *due;
    shard->timer_due_ns = UINT64_MAX;
    while ((due = timeouts_take_due(&shard->timeouts, now_ns))) {
        struct http_conn *conn =
            (struct http_conn *)(void *)((char *)due - offsetof(struct http_conn, timeout));
        http_conn_timed_out(conn, (enum http_timeout)due->klass);
    }
    http_shard_wake_at(shard, body_pool_trim(&shard->pool, now_ns));
    http_shard_wake_at(shard, timeouts_next_ns(&shard->timeouts));
}

struct str http_shard_common(struct http_shard *shard) {
    time_t now = time(NULL);
    if (now != shard->common_second || shard->common_text.len == 0) {
        shard->common_second = now;
        shard->common_text = http1_reply_common(shard->common, shard->server->server_name, now);
    }
    return shard->common_text;
}

/* ---- a shard's life ------------------------------------------------------------------------- */

void http_shard_init(struct http_shard *shard, struct http_server *server, struct worker *worker) {
    const struct http_limits *limits = &server->limits;
    *shard = (struct http_shard){
        .server = server,
        .worker = worker,
        .timer_due_ns = UINT64_MAX,
        .drain_msg.run = run_drain,
        .stop_msg.run = run_stop,
        .done_msg.run = run_done,
        .timeouts = {.after_ns = {[HTTP_TIMEOUT_IDLE] = limits->idle_timeout_ns,
                                  [HTTP_TIMEOUT_HEAD] = limits->header_timeout_ns,
                                  [HTTP_TIMEOUT_BODY] = limits->body_timeout_ns,
                                  [HTTP_TIMEOUT_WRITE] = limits->write_timeout_ns,
                                  [HTTP_TIMEOUT_LINGER] = LINGER_NS}},
    };
}

void http_shard_fini(struct http_shard *shard) {
    assert(shard->n_conns == 0 && shard->n_calls == 0 && !shard->ended);
    free(shard->in);
    free(shard->out);
}

/* ---- connections ----------------------------------------------------------------------------- */

bool http_shard_begin(struct http_shard *shard) {
    uv_loop_t *loop = worker_loop(shard->worker);
    if (shard->begun) {
        return true;
    }
    free(shard->in);
    free(shard->out);
    shard->in = malloc(HTTP_READ_BYTES);
    shard->out = malloc(HTTP_OUT_BYTES);
    if (!shard->in || !shard->out) {
        return false;
    }
    /* Half of what bodies may take is worth keeping between them. */
    const struct http_server *server = shard->server;
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

void http_shard_add(struct http_shard *shard, struct http_conn *conn) {
    conn->prev = NULL;
    conn->next = shard->conns;
    if (conn->next) {
        conn->next->prev = conn;
    }
    shard->conns = conn;
    shard->n_conns++;
}

void http_shard_remove(struct http_shard *shard, struct http_conn *conn) {
    struct http_conn **before = conn->prev ? &conn->prev->next : &shard->conns;
    *before = conn->next;
    if (conn->next) {
        conn->next->prev = conn->prev;
    }
    shard->n_conns--;
}
