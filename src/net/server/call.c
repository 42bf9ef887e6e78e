/* A request's memory and its end. It ends once, and its memory stays until the turn of the loop is
 * over: the handler that has just replied may still look at it. */
#include "net/server/call.h"

#include <assert.h>

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
    call->arena = arena;
    call->conn = conn;
    call->server_worker = server_worker;
    server_worker->n_calls++;
    return call;
}

void net_call_free(struct net_call *call) {
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

bool net_call_body_is_too_slow(const struct net_call *call) {
    const struct net_limits *limits = &call->server_worker->server->limits;
    if (limits->min_body_rate == 0 || limits->body_timeout_ns == 0) {
        return false;
    }
    uint64_t elapsed_ns = clock_now_ns() - call->body_started_ns;
    double due = (double)limits->min_body_rate * ((double)elapsed_ns / 1e9);
    return elapsed_ns > limits->body_timeout_ns && (double)call->received < due;
}

void net_call_finish(struct net_call *call) {
    struct server_worker *server_worker = call->server_worker;
    assert(!call->writing);
    net_call_release_reply(call);
    if (call->handler_started) {
        server_worker->server->protocol->on_call_end(call);
    }
    if (call->body.block) {
        uint64_t now_ns = clock_now_ns();
        body_fini(&call->body, now_ns);
        server_worker_schedule_timer(server_worker, body_pool_trim(&server_worker->pool, now_ns));
    } else if (call->body.n_reserved > 0) {
        body_fini(&call->body, 0);
    }
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

void net_call_write_aborted(struct net_call *call) {
    if (call->is_streaming && !call->replied) {
        net_call_release_reply(call);
    } else {
        net_call_finish(call);
    }
}

void net_call_on_conn_closed(struct net_call *call, bool whole) {
    bool handler_has_it = call->handler_started && !call->replied;
    call->conn = NULL;
    if (handler_has_it) {
        call->server_worker->server->protocol->on_call_disconnected(call); /* may reply, which ends
                                                                              it */
    }
    /* A handler that waits for the body will not reply any more; one that has the request will.
     * What is being written ends with its write. */
    bool ends_later =
        call->writing || (handler_has_it && (whole || call->is_streaming || call->replied));
    if (!ends_later) {
        net_call_finish(call);
    }
}
