/* An exchange from the first byte of its head to the last byte of its answer. It ends once, and its
 * memory stays until the turn of the loop is over: the handler that has just replied may still look
 * at it. */
#include "net/http_conn.h"

#include <assert.h>

#include "base/metric.h"
#include "loop/clock.h"

struct http_call *http_call_new(struct http_conn *conn) {
    struct http_shard *shard = conn->shard;
    const struct http_limits *limits = &shard->server->limits;
    struct arena *arena =
        arena_new(worker_arenas(shard->worker), (size_t)limits->request_memory_bytes);
    struct http_call *call = arena ? arena_calloc(arena, 1, sizeof(*call)) : NULL;
    struct http1_request *request =
        call ? http1_request_new(arena, limits->max_header_bytes) : NULL;
    if (!request) {
        arena_free(arena);
        return NULL;
    }
    call->exchange.arena = arena;
    call->exchange.worker = shard->worker;
    call->exchange.body = STR("");
    call->exchange.plan.max_bytes = limits->max_body_bytes;
    call->conn = conn;
    call->shard = shard;
    call->request = request;
    shard->n_calls++;
    return call;
}

struct arena *http_call_spare(struct http_call *call) {
    if (!call->spare) {
        call->spare = arena_new(worker_arenas(call->shard->worker), 0);
    }
    return call->spare;
}

void http_call_count(struct http_call *call) {
    if (!call->counted) {
        call->counted = true;
        atomic_fetch_add_explicit(&call->shard->in_flight, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, 1);
    }
}

void http_call_end(struct http_call *call) {
    struct http_shard *shard = call->shard;
    const struct http_handler *handler = &shard->server->handler;
    assert(!call->writing);
    if (call->release) {
        call->release(call->cookie);
        call->release = NULL;
    }
    if (call->begun && handler->on_end) {
        handler->on_end(&call->exchange, handler->context);
    }
    if (call->body.block) {
        uint64_t now_ns = clock_now_ns();
        http_body_release(&call->body, now_ns);
        http_shard_wake_at(shard, body_pool_trim(&shard->pool, now_ns));
    }
    http_body_release(&call->body, 0);
    if (call->counted) {
        atomic_fetch_sub_explicit(&shard->in_flight, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, -1);
    }
    call->conn = NULL;
    call->ended_next = shard->ended;
    shard->ended = call;
    shard->n_calls--;
    http_shard_ask_turn(shard);
}

void http_call_detach(struct http_call *call, enum http_conn_state state) {
    const struct http_handler *handler = &call->shard->server->handler;
    bool handler_has_it = call->begun && !call->replied;
    call->conn = NULL;
    if (handler_has_it) {
        call->exchange.gone = true;
        if (handler->on_gone) {
            handler->on_gone(&call->exchange, handler->context); /* may reply, which ends it */
        }
    }
    /* A handler that waits for the body will not reply any more; one that has the request will.
     * What is being written ends with its write. */
    bool ends_later =
        call->writing || (handler_has_it && (state == HTTP_CONN_WAIT || call->replied));
    if (!ends_later) {
        http_call_end(call);
    }
}
