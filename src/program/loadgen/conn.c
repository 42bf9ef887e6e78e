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

void bench_conn_close(struct bench_thread *load, struct bench_conn *conn) {
    if (conn->connection) {
        load->step->call->protocol->close(conn->connection);
        conn->connection = NULL;
    }
}

void bench_conn_set_free(struct bench_thread *load, struct bench_conn *conn, uint64_t now) {
    if (!load->free) {
        load->free_since_ns = now;
    }
    conn->state = BENCH_CONN_FREE;
    conn->next_free = load->free;
    load->free = conn;
}

static void start_back_off(struct bench_thread *load, struct bench_conn *conn, uint64_t now) {
    conn->state = BENCH_CONN_BACKING_OFF;
    conn->due_ns = now + REST_NS;
    load->n_backing_off++;
}

/* Asks to be woken once, for what the connection waits for. */
static void arm_events(struct bench_thread *load, struct bench_conn *conn) {
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
static void error_init(struct bench_error *failed) {
    failed->err.text[0] = '\0';
    failed->http_status = 0;
    failed->mip_error = -1;
    failed->grpc_code = 0;
}

static void count_success(struct bench_thread *load, struct bench_conn *conn, uint64_t now,
                          uint64_t n_bytes) {
    struct bench_step_state *step = load->step;
    struct bench_stats *stats = &load->stats;
    bench_counter_add(&stats->n_answered, 1);
    if (conn->measured) {
        bench_stats_success(stats, now > conn->begun_ns ? now - conn->begun_ns : 0);
    }
    if (now >= step->from_ns && now < atomic_load_explicit(&step->until_ns, memory_order_relaxed)) {
        stats->n_in_window++;
        stats->n_bytes_in_window += step->call->n_bytes + n_bytes;
    }
}

/* The request is over: `status` says how the exchange went, not yet what the server answered. */
static void end_request(struct bench_thread *load, struct bench_conn *conn, enum status status,
                        struct bench_error *failed) {
    const struct bench_call *call = load->step->call;
    uint64_t now = clock_now_ns(), n_bytes = 0;
    load->n_busy--;
    load->stats.last_ns = now;
    if (status == ST_OK) {
        status = call->protocol->take(conn->connection, call, false, &n_bytes, failed);
    }
    if (load->step->reconnect) {
        bench_conn_close(load, conn);
    }
    if (status == ST_OK) {
        count_success(load, conn, now, n_bytes);
        bench_conn_set_free(load, conn, now);
        return;
    }
    failed->err.status = status;
    bench_stats_failure(&load->stats, failed, conn->measured);
    if (status == ST_REFUSED || status == ST_DEADLINE_EXCEEDED) {
        bench_conn_set_free(load, conn, now);
    } else {
        start_back_off(load, conn, now);
    }
}

void bench_conn_step(struct bench_thread *load, struct bench_conn *conn) {
    struct bench_error failed;
    bool done = false;
    error_init(&failed);
    enum status status = load->step->call->protocol->step(conn->connection, &done, &failed.err);
    if (status == ST_OK && !done) {
        arm_events(load, conn);
    } else {
        end_request(load, conn, status, &failed);
    }
}

void bench_conn_start(struct bench_thread *load, uint64_t begun_ns) {
    const struct bench_call *call = load->step->call;
    struct bench_conn *conn = load->free;
    struct bench_error failed;
    enum status status = ST_OK;
    error_init(&failed);
    load->free = conn->next_free;
    load->n_busy++;
    conn->state = BENCH_CONN_BUSY;
    conn->begun_ns = begun_ns;
    conn->measured = begun_ns >= load->step->from_ns;
    if (!conn->connection) {
        conn->fd = -1;
        status = load->channel ? call->protocol->channel->attach(load->channel, call, conn,
                                                                 &conn->connection, &failed.err)
                               : call->protocol->open(call, &conn->connection, &failed.err);
    }
    if (status == ST_OK) {
        status = call->protocol->start(conn->connection, call, &failed.err);
    }
    if (status == ST_OK) {
        bench_conn_step(load, conn);
    } else {
        end_request(load, conn, status, &failed);
    }
}
