/* The loop of one thread. It advances the connections whose socket is ready or whose deadline has
 * expired, and starts due requests on free ones.
 *
 * A socket is armed for one event at a time (EPOLLONESHOT): an event on a connection between
 * requests does not wake the thread, and a socket that was opened again under the same number is
 * noticed when it is armed. */
#include "program/loadgen/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/event/clock.h"
#include "core/must/must.h"

enum bench_conn_state {
    BENCH_CONN_FREE,        /* can start a request */
    BENCH_CONN_BUSY,        /* has a request in flight */
    BENCH_CONN_BACKING_OFF, /* failed; free again at due_ns */
};

struct bench_conn {
    void *connection; /* the protocol's connection; NULL: none yet */
    enum bench_conn_state state;
    int fd; /* last descriptor registered with epoll */
    bool measured;
    uint64_t begun_ns; /* start of the request, scheduled or actual */
    uint64_t due_ns;   /* busy: next step at the latest; backing off: end of the back-off */
    struct bench_conn *next_free;
};

struct bench_thread {
    struct bench_step_state *step;
    struct bench_thread_options options;
    struct bench_arrivals arrivals;
    int epoll;
    void *channel; /* the protocol's channel; NULL: connections are not shared */
    struct bench_conn *conns;
    struct bench_conn *free; /* last used first, so that as few connections as possible are used */
    uint64_t free_since_ns;  /* when the list last became non-empty */
    unsigned n_busy, n_backing_off;
    uint64_t scan_ns; /* time of the next scan of all connections */
    bool ended;       /* no request is started any more */
    bool no_pwait2;   /* the kernel has no epoll_pwait2 */
    struct bench_stats stats;
};

/* ---- one connection -------------------------------------------------------------------------- */

/* Delay after a failure, so that an unreachable server is not retried in a busy loop. */
enum { BACK_OFF_NS = 100 * 1000 * 1000 };

static void close_conn(struct bench_thread *load, struct bench_conn *conn) {
    if (conn->connection) {
        load->step->call->protocol->close(conn->connection);
        conn->connection = NULL;
    }
}

static void set_conn_free(struct bench_thread *load, struct bench_conn *conn, uint64_t now) {
    if (!load->free) {
        load->free_since_ns = now;
    }
    conn->state = BENCH_CONN_FREE;
    conn->next_free = load->free;
    load->free = conn;
}

/* Registers for one event, as the connection needs. */
static void arm_events(struct bench_thread *load, struct bench_conn *conn) {
    struct client_waiting waiting;
    load->step->call->protocol->wait(conn->connection, &waiting);
    uint64_t now = clock_now_ns();
    conn->due_ns = clock_after_ns(now, waiting.timeout_ns);
    if (waiting.fd < 0) { /* wait for the timeout only */
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
    /* The descriptor's number was reused by a new socket, or the other way round. */
    op = op == EPOLL_CTL_MOD ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if ((errno != ENOENT && errno != EEXIST) ||
        epoll_ctl(load->epoll, op, waiting.fd, &event) != 0) {
        conn->due_ns = now; /* without epoll the scans step it */
    }
}

/* The text is set on failure. */
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

/* The request has ended; `status` is the exchange's, `take` returns the answer's. */
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
        close_conn(load, conn);
    }
    if (status == ST_OK) {
        count_success(load, conn, now, n_bytes);
        set_conn_free(load, conn, now);
        return;
    }
    failed->err.status = status;
    bench_stats_failure(&load->stats, failed, conn->measured);
    if (status == ST_REFUSED || status == ST_DEADLINE_EXCEEDED) {
        set_conn_free(load, conn, now);
    } else {
        conn->state = BENCH_CONN_BACKING_OFF;
        conn->due_ns = now + BACK_OFF_NS;
        load->n_backing_off++;
    }
}

static void step_conn(struct bench_thread *load, struct bench_conn *conn) {
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

static void start_request(struct bench_thread *load, uint64_t begun_ns) {
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
        step_conn(load, conn);
    } else {
        end_request(load, conn, status, &failed);
    }
}

enum {
    MAX_EVENTS = 256,
    SCAN_NS = 10 * 1000 * 1000, /* resolution of timeouts and back-offs */
    MAX_WAIT_NS = 50 * 1000 * 1000,
};

/* ---- creating a thread ----------------------------------------------------------------------- */

/* Shared connections have one descriptor for all. */
static enum status open_channel(struct bench_thread *load, struct error *err) {
    const struct bench_call *call = load->step->call;
    const struct bench_channel_functions *channel = call->protocol->channel;
    struct client_waiting waiting;
    enum status status = channel->open(call, load->options.n_shared, &load->channel, err);
    if (status != ST_OK) {
        return status;
    }
    channel->wait(load->channel, &waiting);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    return epoll_ctl(load->epoll, EPOLL_CTL_ADD, waiting.fd, &event) == 0
               ? ST_OK
               : error_set(err, ST_IO, "cannot add the connections to epoll");
}

enum status bench_thread_new(struct bench_step_state *step,
                             const struct bench_thread_options *options, struct bench_thread **out,
                             struct error *err) {
    struct bench_thread *load = must_calloc(1, sizeof(*load), "a thread");
    *out = NULL;
    load->conns = must_calloc(options->n_connections, sizeof(*load->conns), "the connections");
    load->step = step;
    load->options = *options;
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (load->epoll < 0) {
        bench_thread_free(load);
        return error_set(err, ST_IO, "cannot create an epoll descriptor");
    }
    enum status status = options->n_shared > 0 ? open_channel(load, err) : ST_OK;
    if (status != ST_OK) {
        bench_thread_free(load);
        return status;
    }
    for (unsigned i = options->n_connections; i-- > 0;) {
        load->conns[i].fd = -1;
        load->conns[i].next_free = load->free;
        load->free = &load->conns[i];
    }
    if (options->rate > 0) {
        bench_arrivals_init(&load->arrivals, options->rate, options->arrival, options->seed,
                            options->start_ns);
    }
    *out = load;
    return ST_OK;
}

void bench_thread_free(struct bench_thread *load) {
    if (!load) {
        return;
    }
    for (unsigned i = 0; load->conns && i < load->options.n_connections; i++) {
        close_conn(load, &load->conns[i]);
    }
    if (load->channel) {
        load->step->call->protocol->channel->close(load->channel);
    }
    if (load->epoll >= 0) {
        close(load->epoll);
    }
    free(load->conns);
    free(load);
}

const struct bench_stats *bench_thread_stats(const struct bench_thread *load) {
    return &load->stats;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* May a request start at `at_ns`? If their number is limited, takes one of the rest. */
static bool may_begin(struct bench_thread *load, uint64_t at_ns) {
    struct bench_step_state *step = load->step;
    if (at_ns >= atomic_load_explicit(&step->until_ns, memory_order_relaxed)) {
        return false;
    }
    return !step->counted || at_ns < step->from_ns ||
           atomic_fetch_sub_explicit(&step->n_left, 1, memory_order_relaxed) > 0;
}

/* Closed loop: every free connection starts a request. */
static void begin_closed(struct bench_thread *load) {
    while (load->free) {
        uint64_t now = clock_now_ns();
        if (!may_begin(load, now)) {
            return;
        }
        start_request(load, now);
    }
}

/* Open loop: due requests start while connections are free. */
static void begin_open(struct bench_thread *load) {
    uint64_t due;
    while (load->free) {
        uint64_t now = clock_now_ns(), next = bench_arrivals_next_ns(&load->arrivals);
        if (next > now || !may_begin(load, next) ||
            !bench_arrivals_pop_due(&load->arrivals, now, &due)) {
            return;
        }
        if (due >= load->step->from_ns) {
            uint64_t could = due > load->free_since_ns ? due : load->free_since_ns;
            bench_histogram_add(&load->stats.lag, now > could ? now - could : 0);
        }
        start_request(load, due);
    }
}

static void begin_due(struct bench_thread *load) {
    if (load->ended) {
        return;
    }
    if (load->options.rate > 0) {
        begin_open(load);
    } else {
        begin_closed(load);
    }
}

/* Handles timeouts and ends of back-offs, which have no events. */
static void scan_connections(struct bench_thread *load, uint64_t now) {
    load->scan_ns = now + SCAN_NS;
    for (unsigned i = 0; i < load->options.n_connections; i++) {
        struct bench_conn *conn = &load->conns[i];
        if (conn->state == BENCH_CONN_BUSY && conn->due_ns <= now) {
            step_conn(load, conn);
        } else if (conn->state == BENCH_CONN_BACKING_OFF && conn->due_ns <= now) {
            load->n_backing_off--;
            set_conn_free(load, conn, now);
        }
    }
}

/* The time until something may be due. */
static uint64_t wait_ns(const struct bench_thread *load) {
    uint64_t now = clock_now_ns(), until = now + MAX_WAIT_NS;
    uint64_t end = atomic_load_explicit(&load->step->until_ns, memory_order_relaxed);
    if (!load->ended && end < until) {
        until = end;
    }
    if ((load->n_busy > 0 || load->n_backing_off > 0) && load->scan_ns < until) {
        until = load->scan_ns;
    }
    if (load->options.rate > 0 && !load->ended && load->free &&
        bench_arrivals_next_ns(&load->arrivals) < until) {
        until = bench_arrivals_next_ns(&load->arrivals);
    }
    if (load->channel && until > now) {
        struct client_waiting waiting;
        load->step->call->protocol->channel->wait(load->channel, &waiting);
        until = waiting.timeout_ns < until - now ? now + waiting.timeout_ns : until;
    }
    return until > now ? until - now : 0;
}

static int wait_for_events(struct bench_thread *load, struct epoll_event *events) {
    uint64_t ns = wait_ns(load);
    struct timespec timeout = {.tv_sec = 0, .tv_nsec = (long)ns};
    if (!load->no_pwait2) {
        /* glibc has had a function for it since 2.35 only. */
        int n = (int)syscall(SYS_epoll_pwait2, load->epoll, events, MAX_EVENTS, &timeout, NULL, 0);
        if (n >= 0 || errno != ENOSYS) {
            return n;
        }
        load->no_pwait2 = true;
    }
    /* Linux before 5.11: busy-polls for the last millisecond, to be on time. */
    return epoll_wait(load->epoll, events, MAX_EVENTS, (int)(ns / 1000000));
}

/* Ends answered requests. */
static void run_channel(struct bench_thread *load) {
    const struct bench_channel_functions *channel = load->step->call->protocol->channel;
    struct bench_conn *conn;
    channel->run(load->channel);
    while ((conn = channel->next(load->channel))) {
        if (conn->state == BENCH_CONN_BUSY) {
            step_conn(load, conn);
            begin_due(load);
        }
    }
}

/* Counts requests that were due before the end and not started. */
static void count_unsent(struct bench_thread *load) {
    uint64_t due, until = atomic_load_explicit(&load->step->until_ns, memory_order_relaxed);
    if (load->options.rate == 0 || load->step->counted) {
        return;
    }
    while (bench_arrivals_next_ns(&load->arrivals) < until &&
           bench_arrivals_pop_due(&load->arrivals, until, &due)) {
        load->stats.n_unsent += due >= load->step->from_ns;
    }
}

/* Has the thread finished? Only after the last answer, or when answers in flight are abandoned. */
static bool is_over(struct bench_thread *load, uint64_t now) {
    const struct bench_step_state *step = load->step;
    load->ended = load->ended ||
                  now >= atomic_load_explicit(&step->until_ns, memory_order_relaxed) ||
                  (step->counted && atomic_load_explicit(&step->n_left, memory_order_relaxed) <= 0);
    if (load->ended && load->n_busy > 0 &&
        now >= atomic_load_explicit(&step->give_up_ns, memory_order_relaxed)) {
        load->stats.n_abandoned += load->n_busy;
        return true;
    }
    return load->ended && load->n_busy == 0;
}

static uint64_t cpu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_thread_run(struct bench_thread *load) {
    struct epoll_event events[MAX_EVENTS];
    bool measuring = false;
    /* Exact timeouts; the default slack is 50 us. */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    for (;;) {
        uint64_t now = clock_now_ns();
        if (!measuring && now >= load->step->from_ns) {
            measuring = true;
            load->stats.cpu_ns = cpu_now_ns();
        }
        begin_due(load);
        if (is_over(load, now)) {
            break;
        }
        if (load->channel) {
            load->step->call->protocol->channel->flush(load->channel);
        }
        int n = wait_for_events(load, events);
        if (load->channel) {
            run_channel(load);
        }
        for (int i = 0; i < n; i++) {
            struct bench_conn *conn = events[i].data.ptr;
            if (conn && conn->state == BENCH_CONN_BUSY) {
                step_conn(load, conn);
                begin_due(load);
            }
        }
        now = clock_now_ns();
        if (now >= load->scan_ns) {
            scan_connections(load, now);
        }
    }
    load->stats.cpu_ns = measuring ? cpu_now_ns() - load->stats.cpu_ns : 0;
    count_unsent(load);
}
