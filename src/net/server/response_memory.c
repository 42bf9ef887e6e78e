/* Grants waiting requests when memory is free, and closes slow readers to free it. A client that
 * takes less than RELIEF_MIN_BYTES in RELIEF_WINDOW_NS while others wait is a slow reader; of those
 * the one that holds most is closed first. Of an HTTP/2 connection only the calls that are not read
 * are ended, if there are any. */
#include "net/server/response_memory.h"

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/server/conn_limit.h"
#include "net/server/conn_write.h"

enum {
    RELIEF_MIN_BYTES = 16384,
    RELIEF_MAX_CLOSED = 16, /* at a time: each is searched among all connections */
    RELIEF_MAX_IDLE = 64,   /* at a time, of all workers */
};

static const uint64_t RELIEF_WINDOW_NS = UINT64_C(500000000);

/* ---- granting -------------------------------------------------------------------------------- */

static void run_quota(struct server_worker *server_worker) {
    struct server_memory *memory = &server_worker->memory;
    memory->due_ns = memory_quota_run(&memory->quota, clock_now_ns());
    if (memory->due_ns < UINT64_MAX) {
        server_worker_schedule_timer(server_worker, memory->due_ns);
    }
}

static bool run_task(struct deferred_task *task) {
    struct server_worker *server_worker = CONTAINER_OF(task, struct server_worker, memory.task);
    run_quota(server_worker);
    return server_worker->memory.quota.scheduled; /* what was granted has released memory */
}

static void on_schedule(void *user, uint64_t due_ns) {
    struct server_worker *server_worker = user;
    struct server_memory *memory = &server_worker->memory;
    if (due_ns == 0) {
        loop_iteration_defer(worker_loop_iteration(server_worker->worker), &memory->task);
    } else if (due_ns < memory->due_ns) {
        memory->due_ns = due_ns;
        server_worker_schedule_timer(server_worker, due_ns);
    }
}

uint64_t server_memory_on_timer(struct server_worker *server_worker, uint64_t now_ns) {
    if (server_worker->memory.due_ns <= now_ns) {
        run_quota(server_worker);
    }
    return server_worker->memory.due_ns;
}

/* ---- closing slow readers -------------------------------------------------------------------- */

/* Default of net_protocol.unsent: the bytes of the responses wait for the socket, or in it. */
static bool socket_unsent(const struct net_conn *conn, uint64_t *n_taken) {
    if (net_conn_unsent_bytes(conn) == 0 && conn->socket.n_out_bytes == 0) {
        return false;
    }
    *n_taken = net_conn_taken_bytes(conn);
    return true;
}

static bool has_unsent(const struct net_conn *conn, uint64_t *n_taken) {
    const struct net_protocol *protocol = conn->protocol;
    return (protocol->unsent ? protocol->unsent : socket_unsent)(conn, n_taken);
}

/* Observes whether the connection holds responses and how fast its client takes them. */
static void observe_reading(struct net_conn *conn, uint64_t now_ns) {
    struct conn_reading *reading = &conn->slow_reading;
    uint64_t n_taken;
    /* An observation of an earlier shortage tells nothing about this one. */
    bool is_first = reading->since_ns == 0 || now_ns - reading->observed_ns >= RELIEF_WINDOW_NS;
    reading->observed_ns = now_ns;
    if (!has_unsent(conn, &n_taken)) {
        reading->since_ns = 0;
    } else if (is_first || net_bytes_since(n_taken, reading->n_taken) >= RELIEF_MIN_BYTES) {
        reading->n_taken = n_taken;
        reading->since_ns = now_ns;
    }
}

static bool is_slow_reader(struct net_conn *conn, uint64_t now_ns) {
    struct conn_reading *reading = &conn->slow_reading;
    if (conn->phase == NET_CLOSED || !conn->account || memory_account_bytes(conn->account) == 0) {
        reading->since_ns = 0;
        return false;
    }
    if (reading->observed_ns != now_ns) { /* once in a relief, which may close many connections */
        observe_reading(conn, now_ns);
    }
    return reading->since_ns > 0 && now_ns - reading->since_ns >= RELIEF_WINDOW_NS;
}

static struct net_conn *find_largest_slow_reader(struct server_worker *server_worker,
                                                 uint64_t now_ns) {
    struct net_conn *conn, *largest = NULL;
    LIST_FOREACH(conn, &server_worker->conns, link) {
        if (is_slow_reader(conn, now_ns) &&
            (!largest ||
             memory_account_bytes(conn->account) > memory_account_bytes(largest->account))) {
            largest = conn;
        }
    }
    return largest;
}

/* Ends its calls that are not read, or the whole connection. */
static void close_slow_reader(struct net_conn *conn, uint64_t now_ns) {
    struct server_memory *memory = &conn->server_worker->memory;
    const struct net_protocol *protocol = conn->protocol;
    char peer[ADDRESS_TEXT_BYTES];
    size_t n_calls = protocol->end_stalled_calls
                         ? protocol->end_stalled_calls(conn, now_ns - RELIEF_WINDOW_NS)
                         : 0;
    metric_add(METRIC_SLOW_READERS_CLOSED_TOTAL, 1);
    if (log_limit_allow(&memory->log)) {
        log_event(LOG_WARNING, "slow reader closed, other requests wait for memory",
                  LOG_CSTR("peer", net_conn_peer(conn, peer)),
                  LOG_CSTR("closed", n_calls > 0 ? "calls" : "connection"),
                  LOG_U64("bytes", memory_account_bytes(conn->account)),
                  LOG_U64("suppressed", memory->log.n_suppressed));
        memory->log.n_suppressed = 0;
    }
    if (n_calls > 0) {
        conn->slow_reading.since_ns = now_ns; /* the other calls have their own time */
    } else {
        net_conn_close(conn);
    }
}

/* Thread: any. */
static void post_relief(const struct server_worker *server_worker, struct relief *relief) {
    if (!atomic_exchange(&relief->posted, true)) {
        worker_post(server_worker->worker, &relief->msg);
    }
}

static void on_relief(struct worker_msg *msg) {
    struct server_worker *server_worker =
        CONTAINER_OF(msg, struct server_worker, memory.slow_readers.msg);
    struct server_memory *memory = &server_worker->memory;
    struct net_budget *budget = server_worker->server->budget;
    uint64_t now_ns = clock_now_ns();
    struct net_conn *conn;
    atomic_store(&memory->slow_readers.posted, false);
    for (int i = 0;
         i < RELIEF_MAX_CLOSED && (conn = find_largest_slow_reader(server_worker, now_ns)) &&
         net_budget_claim_relief(budget, memory_account_bytes(conn->account));
         i++) {
        close_slow_reader(conn, now_ns);
    }
}

void net_server_relieve(struct net_budget_user *user) {
    struct net_server *server = CONTAINER_OF(user, struct net_server, budget_user);
    for (size_t i = 0; i < server->n_workers; i++) {
        post_relief(&server->workers[i], &server->workers[i].memory.slow_readers);
    }
}

/* Unlike responses, pages are not limited for each connection: clients that read nothing, or a few
 * bytes at a time, could keep all others from getting one. */
static void on_page_relief(struct worker_msg *msg) {
    struct server_worker *server_worker = CONTAINER_OF(msg, struct server_worker, memory.pages.msg);
    uint64_t now_ns = clock_now_ns();
    struct net_conn *conn;
    atomic_store(&server_worker->memory.pages.posted, false);
    LIST_FOREACH(conn, &server_worker->conns, link) {
        if (conn->phase != NET_CLOSED && memory_account_page_bytes(conn->account) > 0 &&
            clock_between_ns(conn->account->pages_since_ns, now_ns) >= NET_PAGE_READ_NS) {
            close_slow_reader(conn, now_ns);
        }
    }
}

void net_server_relieve_pages(struct net_budget_user *user) {
    struct net_server *server = CONTAINER_OF(user, struct net_server, budget_user);
    for (size_t i = 0; i < server->n_workers; i++) {
        post_relief(&server->workers[i], &server->workers[i].memory.pages);
    }
}

/* Idle connections of peers that have many are closed, too. */
static void on_relieve(void *user, uint64_t wanted) {
    const struct server_worker *server_worker = user;
    const struct net_server *server = server_worker->server;
    uint64_t used = atomic_load_explicit(&server->budget->n_bytes, memory_order_relaxed);
    uint64_t limit = net_budget_limit(server->budget);
    uint64_t missing = wanted + (used > limit ? used - limit : 0);
    uint64_t n_conns = missing / server->protocol->conn_memory_bytes + 1;
    net_budget_relieve(server->budget, wanted);
    net_conn_limit_close_idle(server->budget,
                              n_conns < RELIEF_MAX_IDLE ? (size_t)n_conns : RELIEF_MAX_IDLE);
}

/* ---- for reports ----------------------------------------------------------------------------- */

/* Since when nothing was read, by the timer that waits for it; 0: unknown. */
static uint64_t unread_since_by_timer(const struct net_conn *conn) {
    const struct net_protocol *protocol = conn->protocol;
    if (!net_conn_is_sending(conn)) {
        return protocol->unsent_since ? protocol->unsent_since(conn) : 0;
    }
    bool waits = conn->timeout.armed && conn->timeout.timer_class == NET_TIMEOUT_WRITE &&
                 conn->n_taken_at_arm == net_conn_taken_bytes(conn);
    return waits ? conn->timeout.due_ns - conn->server_worker->server->limits.write_timeout_ns : 0;
}

uint64_t net_conn_unread_since(struct net_conn *conn, uint64_t now_ns) {
    struct conn_reading *reading = &conn->reported_reading;
    uint64_t n_taken;
    if (conn->phase == NET_CLOSED || !has_unsent(conn, &n_taken)) {
        reading->since_ns = 0;
        return 0;
    }
    if (reading->since_ns == 0) {
        uint64_t since_ns = unread_since_by_timer(conn);
        *reading =
            (struct conn_reading){.n_taken = n_taken, .since_ns = since_ns > 0 ? since_ns : now_ns};
    } else if (reading->n_taken != n_taken) {
        *reading = (struct conn_reading){.n_taken = n_taken, .since_ns = now_ns};
    }
    return reading->since_ns;
}

static uint64_t load(const _Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

void net_server_add_use(const struct net_budget_user *user, struct net_budget_use *use) {
    const struct net_server *server = CONTAINER_OF(user, struct net_server, budget_user);
    for (size_t i = 0; i < server->n_workers; i++) {
        const struct memory_quota *quota = &server->workers[i].memory.quota;
        /* Each is written by the worker alone, but not both at once. */
        uint64_t n_bytes = load(&quota->n_bytes), n_open_calls = load(&quota->n_overhead_bytes);
        use->n_response_bytes += n_bytes > n_open_calls ? n_bytes - n_open_calls : 0;
        use->n_open_call_bytes += n_open_calls;
        use->n_conn_bytes += load(&quota->n_conn_bytes[MEMORY_CONN_BASE]) +
                             load(&quota->n_conn_bytes[MEMORY_CONN_STATE]);
        use->n_socket_bytes += load(&quota->n_conn_bytes[MEMORY_CONN_SOCKET]);
        use->n_tls_bytes += load(&quota->n_conn_bytes[MEMORY_CONN_TLS]);
        use->n_buffer_bytes += load(&quota->n_conn_bytes[MEMORY_CONN_BUFFERS]);
        use->n_waiting_for_budget += load(&quota->n_waiting_for_budget);
        use->n_waiting_for_account += load(&quota->n_waiting_for_account);
    }
}

/* ---- start and end --------------------------------------------------------------------------- */

void server_memory_init(struct server_worker *server_worker) {
    struct server_memory *memory = &server_worker->memory;
    const struct net_server *server = server_worker->server;
    memory->due_ns = UINT64_MAX;
    memory->task = (struct deferred_task){.run = run_task};
    memory->slow_readers.msg.run = on_relief;
    memory->pages.msg.run = on_page_relief;
    memory_quota_init(&memory->quota, &(struct memory_quota_options){
                                          .budget = server->budget,
                                          .max_unsent_size = server->limits.max_unsent_size,
                                          .now_ns = clock_now_ns,
                                          .schedule = on_schedule,
                                          .relieve = on_relieve,
                                          .user = server_worker,
                                      });
}

void server_memory_fini(struct server_worker *server_worker) {
    memory_quota_fini(&server_worker->memory.quota);
}
