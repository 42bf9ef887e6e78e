/* One worker's part of a server: its connections, timer and buffers.
 *
 * Work that must not run inside a callback (freeing calls, closing the worker) is deferred to the
 * end of the event-loop iteration. */
#include <assert.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/server/call.h"
#include "net/server/conn.h"
#include "net/server/conn_write.h"
#include "net/server/server.h"
#include "net/server/tls/conn.h"

static const uint64_t LINGER_NS = 5000000000u; /* between two reads of dropped input */
static const uint64_t CLIENT_CHECK_NS = 100000000u;

/* ---- deferred work --------------------------------------------------------------------------- */

void server_worker_free_ended_calls(struct server_worker *server_worker) {
    while (server_worker->ended) {
        struct net_call *call = server_worker->ended;
        server_worker->ended = call->ended_next;
        arena_free(call->reply_arena);
        arena_free(call->arena); /* the call lives in it */
    }
}

static bool run_deferred(struct deferred_task *task) {
    struct server_worker *server_worker = CONTAINER_OF(task, struct server_worker, deferred);
    const struct net_protocol *protocol = server_worker->server->protocol;
    bool again = protocol->run_deferred && protocol->run_deferred(server_worker);
    server_worker_free_ended_calls(server_worker);
    server_worker_close_if_done(server_worker);
    return again && !server_worker->done;
}

void server_worker_schedule_deferred(struct server_worker *server_worker) {
    if (!server_worker->done) {
        loop_iteration_defer(worker_loop_iteration(server_worker->worker),
                             &server_worker->deferred);
    }
}

void server_worker_schedule_resume(struct server_worker *server_worker, struct net_conn *conn) {
    loop_iteration_wait(worker_loop_iteration(server_worker->worker), &conn->turn);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

void server_worker_schedule_timer(struct server_worker *server_worker, uint64_t due_ns) {
    if (due_ns >= server_worker->timer_due_ns || server_worker->done) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = clock_between_ns(now_ns, due_ns);
    server_worker->timer_due_ns = now_ns + delay_ns;
    uv_update_time(worker_loop(server_worker->worker));
    uv_timer_start(&server_worker->timer, on_timer, delay_ns / 1000000 + 1, 0);
}

uint64_t server_worker_set_conn_timer(struct server_worker *server_worker, struct net_conn *conn,
                                      enum net_timeout timeout) {
    if (timeout == NET_TIMEOUT_NONE) {
        timer_list_stop(&server_worker->conn_timers, &conn->timeout);
        return 0;
    }
    uint64_t now_ns = clock_now_ns();
    timer_list_start(&server_worker->conn_timers, &conn->timeout, (uint8_t)timeout, now_ns);
    if (conn->timeout.armed) {
        server_worker_schedule_timer(server_worker, conn->timeout.due_ns);
    }
    return now_ns;
}

void server_worker_start_keepalive(struct server_worker *server_worker, struct net_conn *conn) {
    timer_list_start(&server_worker->conn_timers, &conn->keepalive,
                     conn->ping_sent ? NET_TIMEOUT_PING : NET_TIMEOUT_KEEPALIVE, clock_now_ns());
    if (conn->keepalive.armed) {
        server_worker_schedule_timer(server_worker, conn->keepalive.due_ns);
    }
}

/* Where many connections time out at once, the rest follows in the next iterations. `was_late`: the
 * timer has waited for one more poll. */
static void run_conn_timers(struct server_worker *server_worker, uint64_t now_ns, bool was_late) {
    struct loop_iteration *iteration = worker_loop_iteration(server_worker->worker);
    struct list_timer *due;
    while (timer_list_next_ns(&server_worker->conn_timers) <= now_ns) {
        if (loop_share_is_spent(&iteration->timers, LOOP_TIMERS_NS)) {
            return;
        }
        due = timer_list_pop_due(&server_worker->conn_timers, now_ns);
        if (due->timer_class == NET_TIMEOUT_KEEPALIVE || due->timer_class == NET_TIMEOUT_PING) {
            net_conn_probe(CONTAINER_OF(due, struct net_conn, keepalive));
        } else if (was_late && due->timer_class == NET_TIMEOUT_WRITE) {
            net_conn_update_io(CONTAINER_OF(due, struct net_conn, timeout)); /* starts it again */
        } else {
            net_conn_timed_out(CONTAINER_OF(due, struct net_conn, timeout),
                               (enum net_timeout)due->timer_class);
        }
    }
}

/* Of its connections, and of their calls. */
static void run_client_timers(struct server_worker *server_worker, uint64_t now_ns, bool was_late) {
    run_conn_timers(server_worker, now_ns, was_late);
    if (server_worker->server->protocol->on_timer) {
        server_worker->server->protocol->on_timer(server_worker, now_ns);
    }
    server_worker_schedule_timer(server_worker, timer_list_next_ns(&server_worker->conn_timers));
}

static void run_client_timers_turn(struct loop_turn *turn) {
    struct server_worker *server_worker =
        CONTAINER_OF(turn, struct server_worker, client_timers_turn);
    run_client_timers(server_worker, clock_now_ns(), server_worker->timed_out_late);
    server_worker_free_ended_calls(server_worker);
}

/* Late (timer_is_late), it runs after one more poll of the sockets, which reads what clients have
 * sent. A write then gets its whole timeout again: nothing was written meanwhile. What the
 * connections that wait for a turn have received is read first, too. */
static void on_timer(uv_timer_t *timer) {
    struct server_worker *server_worker = timer->data;
    uint64_t now_ns = clock_now_ns();
    struct loop_iteration *iteration = worker_loop_iteration(server_worker->worker);
    enum late_timer_result late = late_timer_check(&server_worker->late_timer, iteration,
                                                   server_worker->timer_due_ns, now_ns);
    bool was_late = late == TIMER_AFTER_POLL;
    server_worker->timer_due_ns = UINT64_MAX;
    if (late == TIMER_WAITS_FOR_POLL) {
        server_worker_schedule_timer(server_worker, now_ns);
        return;
    }
    if (loop_iteration_n_turns(iteration) > 0) {
        server_worker->timed_out_late = was_late;
        loop_iteration_wait(iteration, &server_worker->client_timers_turn);
    } else {
        run_client_timers(server_worker, now_ns, was_late);
    }
    server_worker_schedule_timer(server_worker, server_memory_on_timer(server_worker, now_ns));
    server_worker_schedule_timer(server_worker, server_sockets_on_timer(server_worker, now_ns));
    server_worker_schedule_timer(server_worker, body_pool_trim(&server_worker->pool, now_ns));
}

/* ---- starting and freeing -------------------------------------------------------------------- */

void server_worker_init(struct server_worker *server_worker, struct net_server *server,
                        struct worker *worker) {
    const struct net_limits *limits = &server->limits;
    *server_worker = (struct server_worker){
        .server = server,
        .worker = worker,
        .timer_due_ns = UINT64_MAX,
        .send_slices = {.run = net_conns_send_slices},
        .deferred = {.run = run_deferred, .runs_last = true},
        .client_timers_turn = {.run = run_client_timers_turn},
        .conn_timers = {.after_ns = {[NET_TIMEOUT_IDLE] = limits->idle_timeout_ns,
                                     [NET_TIMEOUT_HEAD] = limits->header_timeout_ns,
                                     [NET_TIMEOUT_BODY] = limits->body_timeout_ns,
                                     [NET_TIMEOUT_WRITE] = limits->write_timeout_ns,
                                     [NET_TIMEOUT_LINGER] = LINGER_NS,
                                     [NET_TIMEOUT_CLIENT] = CLIENT_CHECK_NS,
                                     [NET_TIMEOUT_KEEPALIVE] = limits->keepalive_time_ns,
                                     [NET_TIMEOUT_PING] = limits->keepalive_timeout_ns > 0
                                                              ? limits->keepalive_timeout_ns
                                                              : limits->keepalive_time_ns}},
        .prng = {clock_now_ns() + (uint64_t)(uintptr_t)server_worker},
    };
    server_worker_init_shutdown(server_worker);
    timer_list_init(&server_worker->conn_timers);
    server_memory_init(server_worker);
    server_sockets_init(&server_worker->sockets);
}

void server_worker_fini(struct server_worker *server_worker) {
    assert(server_worker->n_conns == 0 && server_worker->n_calls == 0 && !server_worker->ended);
    server_memory_fini(server_worker);
    free(server_worker->tls);
    free(server_worker->in);
    free(server_worker->out);
}

bool server_worker_start(struct server_worker *server_worker) {
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
    /* Of the body budget, a 16th may stay cached between bodies; it is in no budget. */
    const struct net_server *server = server_worker->server;
    uint64_t kept = server->budget->body_memory / 16 / server->n_workers;
    body_pool_init(&server_worker->pool, kept < SIZE_MAX ? (size_t)kept : SIZE_MAX);
    uv_timer_init(worker_loop(server_worker->worker), &server_worker->timer); /* cannot fail */
    server_worker->timer.data = server_worker;
    server_worker->started = true;
    return true;
}

/* ---- connections ----------------------------------------------------------------------------- */

void server_worker_add_conn(struct server_worker *server_worker, struct net_conn *conn) {
    LIST_INSERT_HEAD(&server_worker->conns, conn, link);
    server_worker->n_conns++;
}

void server_worker_remove_conn(struct server_worker *server_worker, struct net_conn *conn) {
    loop_iteration_end_wait(worker_loop_iteration(server_worker->worker), &conn->turn);
    if (server_worker->drain_next == conn) {
        server_worker->drain_next = LIST_NEXT(conn, link);
    }
    LIST_REMOVE(conn, link);
    server_worker->n_conns--;
}
