/* How a server ends. A drain tells the connections, worker by worker; a stop closes the listeners
 * and the connections, and is complete once each listener and each worker has closed its last
 * handle. */
#include "net/server/shutdown.h"

#include <assert.h>

#include "core/base/compiler.h"
#include "net/server/conn.h"
#include "net/server/conn_write.h"
#include "net/server/listener.h"
#include "net/server/server.h"
#include "net/server/tls/conn.h"

/* ---- drain ----------------------------------------------------------------------------------- */

static bool is_idle(const struct net_conn *conn) {
    return conn->phase == NET_OPEN && !net_conn_is_sending(conn) && !conn->pending_input &&
           !net_tls_in_handshake(conn) && conn->protocol->is_idle(conn);
}

static void drain_conn(struct net_conn *conn) {
    if (conn->phase == NET_OPEN && conn->protocol->on_drain) {
        conn->protocol->on_drain(conn);
        net_conn_update_io(conn);
    } else if (is_idle(conn) && !net_conn_has_unread(conn)) {
        net_conn_close(conn);
    }
}

static void end_drain(struct server_worker *server_worker) {
    if (server_worker->drains) {
        server_worker->drains = false;
        server_worker->drain_next = NULL;
        loop_iteration_end_wait(worker_loop_iteration(server_worker->worker),
                                &server_worker->drain_turn);
        atomic_fetch_sub_explicit(&server_worker->server->n_telling, 1, memory_order_relaxed);
    }
}

/* Tells the connections that were open when the drain began: as many as fit into the iteration,
 * the others in their turn. Later ones know it (server_worker_is_draining). It ends once what they
 * were told is sent, which is deferred work. */
static void run_drain_turn(struct loop_turn *turn) {
    struct server_worker *server_worker = CONTAINER_OF(turn, struct server_worker, drain_turn);
    struct loop_iteration *iteration = worker_loop_iteration(server_worker->worker);
    struct net_conn *conn;
    while ((conn = server_worker->drain_next)) {
        server_worker->drain_next = LIST_NEXT(conn, link);
        drain_conn(conn);
        if (server_worker->drain_next && loop_iteration_is_over(iteration)) {
            loop_iteration_wait(iteration, turn);
            break;
        }
    }
    server_worker_free_ended_calls(server_worker);
    if (server_worker->drain_next) {
        return;
    }
    if (server_worker->deferred.queued) {
        loop_iteration_wait(iteration, turn);
    } else {
        end_drain(server_worker);
    }
}

static void run_drain(struct worker_msg *msg) {
    struct server_worker *server_worker = CONTAINER_OF(msg, struct server_worker, drain_msg);
    server_worker->drains = true;
    server_worker->drain_next = LIST_FIRST(&server_worker->conns);
    loop_iteration_wait(worker_loop_iteration(server_worker->worker), &server_worker->drain_turn);
}

void net_server_drain(struct net_server *server) {
    if (atomic_load(&server->draining) || server->stopping) {
        return;
    }
    atomic_store(&server->draining, true);
    for (size_t i = 0; i < server->n_workers; i++) {
        atomic_fetch_add_explicit(&server->n_telling, 1, memory_order_relaxed);
        worker_post(server->workers[i].worker, &server->workers[i].drain_msg);
    }
}

uint64_t net_server_in_flight(const struct net_server *server) {
    uint64_t n = 0;
    for (size_t i = 0; i < server->n_workers; i++) {
        n += atomic_load_explicit(&server->workers[i].in_flight, memory_order_relaxed);
    }
    bool is_telling = atomic_load_explicit(&server->n_telling, memory_order_relaxed) > 0;
    return n == 0 && is_telling ? 1 : n;
}

/* ---- stop ------------------------------------------------------------------------------------ */

void net_server_on_one_closed(struct net_server *server) {
    assert(server->n_open > 0);
    if (--server->n_open == 0 && server->stopping) {
        server->done(server->user);
    }
}

static void on_timer_closed(uv_handle_t *handle) {
    struct server_worker *server_worker = handle->data;
    worker_post(server_worker->server->acceptor, &server_worker->done_msg);
}

static void run_done(struct worker_msg *msg) {
    struct server_worker *server_worker = CONTAINER_OF(msg, struct server_worker, done_msg);
    net_server_on_one_closed(server_worker->server);
}

void server_worker_close_if_done(struct server_worker *server_worker) {
    if (!server_worker->stopping || server_worker->done || server_worker->n_conns > 0 ||
        server_worker->n_calls > 0) {
        return;
    }
    server_worker->done = true;
    if (!server_worker->started) {
        worker_post(server_worker->server->acceptor, &server_worker->done_msg);
        return;
    }
    loop_iteration_end_wait(worker_loop_iteration(server_worker->worker),
                            &server_worker->client_timers_turn);
    body_pool_fini(&server_worker->pool);
    uv_close((uv_handle_t *)&server_worker->timer, on_timer_closed);
}

static void run_stop(struct worker_msg *msg) {
    struct server_worker *server_worker = CONTAINER_OF(msg, struct server_worker, stop_msg);
    server_worker->stopping = true;
    end_drain(server_worker);
    struct net_conn *conn;
    LIST_FOREACH(conn, &server_worker->conns, link) {
        net_conn_close(conn); /* it leaves the list when its handle is closed */
    }
    if (server_worker->started) {
        server_worker_schedule_deferred(server_worker);
    } else {
        server_worker_close_if_done(server_worker);
    }
}

void net_server_stop(struct net_server *server, void (*done)(void *user), void *user) {
    if (server->stopping) {
        return;
    }
    server->stopping = true;
    server->done = done;
    server->user = user;
    server->n_open += server->n_workers;
    for (size_t i = 0; i < server->n_listen_endpoints; i++) {
        listener_close(server->listen_endpoints[i]->listener);
    }
    for (size_t i = 0; i < server->n_workers; i++) {
        worker_post(server->workers[i].worker, &server->workers[i].stop_msg);
    }
}

void server_worker_init_shutdown(struct server_worker *server_worker) {
    server_worker->drain_turn.run = run_drain_turn;
    server_worker->drain_msg.run = run_drain;
    server_worker->stop_msg.run = run_stop;
    server_worker->done_msg.run = run_done;
}
