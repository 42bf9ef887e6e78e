/* One connection of a load, from the beginning of a request to its end.
 *
 * A socket is armed for one event at a time (EPOLLONESHOT): a connection between requests wakes
 * nobody, and one that was opened anew under the same number is noticed when it is armed. */
#include "program/loadgen/conn.h"

#include <errno.h>
#include <sys/epoll.h>

#include "core/event/clock.h"

/* A connection that failed rests so long: a server that is gone is not asked a million times. */
enum { REST_NS = 100 * 1000 * 1000 };

void conn_drop(struct bench_load *load, struct conn *conn) {
    if (conn->connection) {
        load->step->call->protocol->close(conn->connection);
        conn->connection = NULL;
    }
}

void conn_become_free(struct bench_load *load, struct conn *conn, uint64_t now) {
    if (!load->free) {
        load->free_since_ns = now;
    }
    conn->state = CONN_FREE;
    conn->next_free = load->free;
    load->free = conn;
}

static void become_resting(struct bench_load *load, struct conn *conn, uint64_t now) {
    conn->state = CONN_RESTING;
    conn->due_ns = now + REST_NS;
    load->n_resting++;
}

/* Asks to be woken once, for what the connection waits for. */
static void arm(struct bench_load *load, struct conn *conn) {
    struct client_waiting waiting;
    load->step->call->protocol->wait(conn->connection, &waiting);
    uint64_t now = clock_now_ns();
    conn->due_ns = waiting.timeout_ns < UINT64_MAX - now ? now + waiting.timeout_ns : UINT64_MAX;
    if (waiting.fd < 0) { /* the time alone counts */
        load->scan_ns = conn->due_ns < load->scan_ns ? conn->due_ns : load->scan_ns;
        return;
    }
    struct epoll_event event = {.events = (uint32_t)EPOLLONESHOT |
                                          (waiting.read ? (uint32_t)EPOLLIN : 0) |
                                          (waiting.write ? (uint32_t)EPOLLOUT : 0),
                                .data.ptr = conn};
    int op = waiting.fd == conn->fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    conn->fd = waiting.fd;
    if (epoll_ctl(load->epoll, op, waiting.fd, &event) == 0) {
        return;
    }
    /* The same number, but a new socket; or the other way round. */
    op = op == EPOLL_CTL_MOD ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if ((errno != ENOENT && errno != EEXIST) ||
        epoll_ctl(load->epoll, op, waiting.fd, &event) != 0) {
        conn->due_ns = now; /* without epoll it is looked at now and then */
    }
}

/* Its text is not cleared: who fails fills it. */
static void failed_init(struct bench_failed *failed) {
    failed->err.text[0] = '\0';
    failed->http_status = 0;
    failed->mip_error = -1;
    failed->grpc_code = 0;
}

static void succeed(struct bench_load *load, struct conn *conn, uint64_t now, uint64_t n_bytes) {
    struct bench_step_state *step = load->step;
    struct bench_stats *stats = &load->stats;
    bench_count(&stats->n_answered, 1);
    if (conn->measured) {
        bench_stats_success(stats, now > conn->begun_ns ? now - conn->begun_ns : 0);
    }
    if (now >= step->from_ns && now < atomic_load_explicit(&step->until_ns, memory_order_relaxed)) {
        stats->n_in_window++;
        stats->n_bytes_in_window += step->call->n_bytes + n_bytes;
    }
}

/* The request is over: `status` says how the exchange went, not yet what the server answered. */
static void end_request(struct bench_load *load, struct conn *conn, enum status status,
                        struct bench_failed *failed) {
    const struct bench_call *call = load->step->call;
    uint64_t now = clock_now_ns(), n_bytes = 0;
    load->n_busy--;
    load->stats.last_ns = now;
    if (status == ST_OK) {
        status = call->protocol->take(conn->connection, call, false, &n_bytes, failed);
    }
    if (load->step->reconnect) {
        conn_drop(load, conn);
    }
    if (status == ST_OK) {
        succeed(load, conn, now, n_bytes);
        conn_become_free(load, conn, now);
        return;
    }
    failed->err.status = status;
    bench_stats_failure(&load->stats, failed, conn->measured);
    if (status == ST_REFUSED || status == ST_DEADLINE_EXCEEDED) {
        conn_become_free(load, conn, now);
    } else {
        become_resting(load, conn, now);
    }
}

void conn_advance(struct bench_load *load, struct conn *conn) {
    struct bench_failed failed;
    bool done = false;
    failed_init(&failed);
    enum status status = load->step->call->protocol->step(conn->connection, &done, &failed.err);
    if (status == ST_OK && !done) {
        arm(load, conn);
    } else {
        end_request(load, conn, status, &failed);
    }
}

void conn_begin(struct bench_load *load, uint64_t begun_ns) {
    const struct bench_call *call = load->step->call;
    struct conn *conn = load->free;
    struct bench_failed failed;
    enum status status = ST_OK;
    failed_init(&failed);
    load->free = conn->next_free;
    load->n_busy++;
    conn->state = CONN_BUSY;
    conn->begun_ns = begun_ns;
    conn->measured = begun_ns >= load->step->from_ns;
    if (!conn->connection) {
        conn->fd = -1;
        status = load->hub ? call->protocol->hub->attach(load->hub, call, conn, &conn->connection,
                                                         &failed.err)
                           : call->protocol->open(call, &conn->connection, &failed.err);
    }
    if (status == ST_OK) {
        status = call->protocol->start(conn->connection, call, &failed.err);
    }
    if (status == ST_OK) {
        conn_advance(load, conn);
    } else {
        end_request(load, conn, status, &failed);
    }
}
