/* A request's memory and its end. It ends once, and its memory stays until the turn of the loop is
 * over: the handler that has just replied may still look at it. */
#include "net/server/call.h"

#include <assert.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"

struct net_call *net_call_new(struct net_conn *conn, size_t n_bytes) {
    struct net_shard *shard = conn->shard;
    struct arena *arena =
        arena_new(worker_arenas(shard->worker), (size_t)shard->server->limits.request_memory_bytes);
    struct net_call *call = arena ? arena_calloc(arena, 1, n_bytes) : NULL;
    if (!call) {
        arena_free(arena);
        return NULL;
    }
    call->arena = arena;
    call->conn = conn;
    call->shard = shard;
    shard->n_calls++;
    return call;
}

void net_call_discard(struct net_call *call) {
    call->shard->n_calls--;
    arena_free(call->arena);
}

struct arena *net_call_spare(struct net_call *call) {
    if (!call->spare) {
        call->spare = arena_new(worker_arenas(call->shard->worker), 0);
    }
    return call->spare;
}

void net_call_count(struct net_call *call) {
    if (!call->counted) {
        call->counted = true;
        atomic_fetch_add_explicit(&call->shard->in_flight, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, 1);
    }
}

bool net_call_is_too_slow(const struct net_call *call) {
    const struct net_limits *limits = &call->shard->server->limits;
    if (limits->min_body_rate == 0 || limits->body_timeout_ns == 0) {
        return false;
    }
    uint64_t elapsed_ns = clock_now_ns() - call->body_begun_ns;
    double due = (double)limits->min_body_rate * ((double)elapsed_ns / 1e9);
    return elapsed_ns > limits->body_timeout_ns && (double)call->received < due;
}

void net_call_end(struct net_call *call) {
    struct net_shard *shard = call->shard;
    assert(!call->writing);
    net_call_release(call);
    if (call->begun) {
        shard->server->protocol->on_call_end(call);
    }
    if (call->body.block) {
        uint64_t now_ns = clock_now_ns();
        body_release(&call->body, now_ns);
        net_shard_wake_at(shard, body_pool_trim(&shard->pool, now_ns));
    } else if (call->body.granted > 0) {
        body_release(&call->body, 0);
    }
    if (call->counted) {
        atomic_fetch_sub_explicit(&shard->in_flight, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, -1);
    }
    call->conn = NULL;
    call->ended_next = shard->ended;
    shard->ended = call;
    shard->n_calls--;
    net_shard_ask_turn(shard);
}

void net_call_written_in_vain(struct net_call *call) {
    if (call->streams && !call->replied) {
        net_call_release(call);
    } else {
        net_call_end(call);
    }
}

void net_call_detach(struct net_call *call, bool whole) {
    bool handler_has_it = call->begun && !call->replied;
    call->conn = NULL;
    if (handler_has_it) {
        call->shard->server->protocol->on_call_gone(call); /* may reply, which ends it */
    }
    /* A handler that waits for the body will not reply any more; one that has the request will.
     * What is being written ends with its write. */
    bool ends_later =
        call->writing || (handler_has_it && (whole || call->streams || call->replied));
    if (!ends_later) {
        net_call_end(call);
    }
}
