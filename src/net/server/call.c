/* A call: its memory, its response, and its end. */
#include "net/server/call.h"

#include <assert.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

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
        receive_rate_add(&call->body_rate, n_bytes, call->received, clock_now_ns(),
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

/* ---- its response ---------------------------------------------------------------------------- */

static void on_written(struct net_write *write, int status) {
    struct net_call *call = CONTAINER_OF(write, struct net_call, write);
    struct net_conn *conn = call->conn;
    call->writing = false;
    if (conn && status < 0) {
        net_conn_close(conn);
    } else if (conn) {
        conn->protocol->on_written(call);
        net_conn_update_io(conn);
    } else if (call->is_streaming && !call->replied) {
        net_call_release_reply(call); /* the handler has more of the response to send */
    } else {
        net_call_finish(call);
    }
}

bool net_call_send(struct net_call *call, struct net_outgoing *out) {
    struct net_conn *conn = call->conn;
    net_conn_flush(conn);
    if (conn->phase == NET_CLOSED) {
        return false;
    }
    call->write.done = on_written;
    int rc = net_conn_write(conn, out, &call->write);
    call->writing = rc == 0;
    if (rc < 0) {
        net_conn_close(conn);
    }
    return rc > 0;
}
