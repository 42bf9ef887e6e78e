/* A connection: the states it goes through, what each of them reads and for how long it may last.
 * It refuses to look at bytes: http_read.c and http_write.c do. */
#include "net/http_conn.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/metric.h"
#include "loop/clock.h"

/* The whole of a linger, however busily the client sends. */
static const uint64_t LINGER_MOST_NS = 30000000000u;

#define FROM(state) (1u << HTTP_CONN_##state)

void http_conn_set_state(struct http_conn *conn, enum http_conn_state state) {
    static const unsigned PREDECESSORS[HTTP_CONN_STATES] = {
        [HTTP_CONN_IDLE] = FROM(REPLY) | FROM(SKIP),
        [HTTP_CONN_HEAD] = FROM(IDLE),
        [HTTP_CONN_BODY] = FROM(HEAD),
        [HTTP_CONN_WAIT] = FROM(HEAD) | FROM(BODY),
        [HTTP_CONN_REPLY] = FROM(HEAD) | FROM(BODY) | FROM(WAIT) | FROM(REPLY_SKIP),
        [HTTP_CONN_REPLY_SKIP] = FROM(BODY),
        [HTTP_CONN_SKIP] = FROM(REPLY_SKIP),
        [HTTP_CONN_LINGER] = FROM(REPLY) | FROM(SKIP),
        [HTTP_CONN_CLOSED] = FROM(IDLE) | FROM(HEAD) | FROM(BODY) | FROM(WAIT) | FROM(REPLY) |
                             FROM(REPLY_SKIP) | FROM(SKIP) | FROM(LINGER),
    };
    assert(PREDECESSORS[state] & (1u << conn->state));
    conn->state = (uint8_t)state;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void conn_free(struct http_conn *conn) {
    struct http_shard *shard = conn->shard;
    atomic_fetch_sub_explicit(&shard->load, 1, memory_order_relaxed);
    net_budget_disconnect(shard->server->budget);
    free(conn->stash);
    free(conn);
}

static void on_closed(uv_handle_t *handle) {
    struct http_conn *conn = handle->data;
    struct http_shard *shard = conn->shard;
    http_shard_remove(shard, conn);
    metric_add(METRIC_CONNECTIONS, -1);
    conn_free(conn);
    http_shard_ask_turn(shard);
}

/* Returns: 0, or libuv's error; the descriptor is the handle's then. */
static int handle_open(struct http_conn *conn) {
    uv_loop_t *loop = worker_loop(conn->shard->worker);
    int rc;
    if (conn->is_unix) {
        uv_pipe_init(loop, &conn->uv.pipe, 0); /* the inits cannot fail */
        rc = uv_pipe_open(&conn->uv.pipe, conn->fd);
    } else {
        uv_tcp_init(loop, &conn->uv.tcp);
        rc = uv_tcp_open(&conn->uv.tcp, conn->fd);
    }
    conn->uv.handle.data = conn;
    return rc;
}

/* One connection too many. */
static void refuse(struct http_conn *conn) {
    const struct net_budget *budget = conn->shard->server->budget;
    struct error err;
    conn->call = http_call_new(conn);
    if (!conn->call) {
        http_conn_close(conn);
        return;
    }
    http_conn_set_state(conn, HTTP_CONN_HEAD);
    error_set(&err, ST_TOO_MANY_CONNECTIONS,
              "this server takes at most %llu connections (--max-connections)",
              (unsigned long long)budget->max_connections);
    http_reply_error(&conn->call->exchange, &err, NULL, 0);
}

void http_conn_open(struct http_conn *conn) {
    struct http_shard *shard = conn->shard;
    if (shard->stopping || !http_shard_begin(shard)) {
        close(conn->fd);
        conn_free(conn);
        return;
    }
    int rc = handle_open(conn);
    if (rc != 0) {
        close(conn->fd);
    }
    conn->fd = -1;
    http_shard_add(shard, conn);
    metric_add(METRIC_CONNECTIONS, 1);
    metric_add(METRIC_CONNECTIONS_TOTAL, 1);
    if (rc != 0) {
        http_conn_close(conn);
    } else if (conn->refused) {
        refuse(conn);
    } else {
        http_conn_settle(conn);
    }
}

void http_conn_close(struct http_conn *conn) {
    if (conn->state == HTTP_CONN_CLOSED) {
        return;
    }
    struct http_call *call = conn->call;
    enum http_conn_state state = conn->state;
    http_conn_set_state(conn, HTTP_CONN_CLOSED);
    timeouts_disarm(&conn->shard->timeouts, &conn->timeout);
    if (conn->shard->out_conn == conn) {
        conn->shard->out_len = 0;
        conn->shard->out_conn = NULL;
    }
    conn->call = NULL;
    if (call) {
        http_call_detach(call, state);
    }
    uv_close(&conn->uv.handle, on_closed);
}

/* ---- from one request to the next ------------------------------------------------------------ */

/* Says that nothing more comes and lets the client finish: closing now could destroy the answer on
 * its way, because the kernel answers bytes that come after a close with a reset. */
static void linger(struct http_conn *conn) {
    uv_os_fd_t fd;
    http_conn_set_state(conn, HTTP_CONN_LINGER);
    conn->linger_end_ns = clock_now_ns() + LINGER_MOST_NS;
    if (uv_fileno(&conn->uv.handle, &fd) == 0) {
        shutdown(fd, SHUT_WR);
    }
    free(conn->stash);
    conn->stash = NULL;
    conn->stash_len = 0;
}

void http_conn_next(struct http_conn *conn) {
    struct http_call *call = conn->call;
    conn->call = NULL;
    http_call_end(call);
    if (!conn->last && !http_shard_is_draining(conn->shard)) {
        http_conn_set_state(conn, HTTP_CONN_IDLE);
        if (conn->stash && !conn->consuming) {
            http_shard_make_ready(conn->shard, conn);
        }
    } else if (conn->eof || conn->clean_end) {
        http_conn_close(conn);
    } else {
        linger(conn);
    }
}

/* ---- after an event -------------------------------------------------------------------------- */

static bool wants_to_read(const struct http_conn *conn) {
    if (conn->eof || conn->flushing || conn->stash || conn->ready) {
        return false;
    }
    if (conn->last && conn->state == HTTP_CONN_REPLY) {
        return conn->discarded <= conn->shard->server->limits.discard_bytes;
    }
    return true;
}

static enum http_timeout timeout_of(const struct http_conn *conn) {
    if (conn->flushing) {
        return HTTP_TIMEOUT_WRITE;
    }
    switch ((enum http_conn_state)conn->state) {
    case HTTP_CONN_IDLE:
        return HTTP_TIMEOUT_IDLE;
    case HTTP_CONN_HEAD:
        return HTTP_TIMEOUT_HEAD;
    case HTTP_CONN_BODY:
    case HTTP_CONN_SKIP:
        return HTTP_TIMEOUT_BODY;
    case HTTP_CONN_REPLY:
    case HTTP_CONN_REPLY_SKIP:
        return HTTP_TIMEOUT_WRITE;
    case HTTP_CONN_LINGER:
        return HTTP_TIMEOUT_LINGER;
    case HTTP_CONN_WAIT:
    case HTTP_CONN_CLOSED:
    case HTTP_CONN_STATES:
        break;
    }
    return HTTP_TIMEOUT_NONE;
}

static void arm(struct http_conn *conn) {
    enum http_timeout timeout = timeout_of(conn);
    /* A head has one time for all of it, what is skipped too, and a write goes on only when the
     * client takes something. */
    bool keeps = timeout == HTTP_TIMEOUT_HEAD || timeout == HTTP_TIMEOUT_WRITE ||
                 conn->state == HTTP_CONN_SKIP;
    if (keeps && conn->timeout.armed && conn->timeout.klass == timeout) {
        return;
    }
    if (timeout == HTTP_TIMEOUT_WRITE) {
        conn->write_left = uv_stream_get_write_queue_size(&conn->uv.stream);
    }
    http_shard_arm(conn->shard, conn, timeout);
}

void http_conn_settle(struct http_conn *conn) {
    if (conn->state != HTTP_CONN_CLOSED) {
        http_write_flush(conn);
    }
    if (conn->state == HTTP_CONN_LINGER && clock_now_ns() >= conn->linger_end_ns) {
        http_conn_close(conn);
    }
    if (conn->state == HTTP_CONN_CLOSED) {
        return;
    }
    if (wants_to_read(conn)) {
        http_conn_read_start(conn);
    } else {
        http_conn_read_stop(conn);
    }
    arm(conn);
}

/* ---- when nothing happens -------------------------------------------------------------------- */

static void head_timed_out(struct http_conn *conn) {
    if (!http1_request_has_begun(conn->call->request)) {
        http_conn_close(conn);
        return;
    }
    struct error err;
    error_set(&err, ST_REQUEST_TIMEOUT,
              "the head of the request was not complete in time (--header-timeout)");
    http_reply_error(&conn->call->exchange, &err, NULL, 0);
}

static void write_timed_out(struct http_conn *conn) {
    size_t left = uv_stream_get_write_queue_size(&conn->uv.stream);
    if (left == conn->write_left) {
        http_conn_close(conn);
    } /* else something was taken: settle arms it again */
}

void http_conn_timed_out(struct http_conn *conn, enum http_timeout timeout) {
    switch (timeout) {
    case HTTP_TIMEOUT_HEAD:
        head_timed_out(conn);
        break;
    case HTTP_TIMEOUT_BODY:
        if (conn->state == HTTP_CONN_BODY) {
            http_receive_timed_out(conn);
        } else {
            http_conn_close(conn);
        }
        break;
    case HTTP_TIMEOUT_WRITE:
        write_timed_out(conn);
        break;
    case HTTP_TIMEOUT_IDLE:
    case HTTP_TIMEOUT_LINGER:
    case HTTP_TIMEOUT_NONE:
        http_conn_close(conn);
        break;
    }
    http_conn_settle(conn);
}
