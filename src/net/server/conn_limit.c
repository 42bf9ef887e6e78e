/* Which connection makes room for another one: it is chosen on the acceptor's thread or any other,
 * and its worker, which knows what it is doing now, closes it or keeps it. */
#include "net/server/conn_limit.h"

#include <poll.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/server/conn_write.h"
#include "net/server/tls/conn.h"

/* Where other memory than that of connections is used up, a peer with so many loses none for it:
 * may_exceed, find_place and net_conn_limit_close_idle. */
enum { MAX_OF_SMALL_PEER = 16 };
static const uint64_t RELIEF_IDLE_NS = 1000000000u; /* net_conn_limit_close_idle */
static const uint64_t NO_HOST = 0; /* a connection is closed for no particular one */
/* Of those over the limit: one that became busy in the meantime has kept its place. */
enum { MAX_TAKEN_PLACES = 4, MAX_FREED_DESCRIPTORS = 4, MAX_TRIED_PLACES = 8 };
/* While connections are being closed for others, further ones wait in the backlog when this
 * fraction over the limit is in use. */
enum { CONN_OVER_SHARE = 8 };

/* ---- choosing one ---------------------------------------------------------------------------- */

static void run_evict(struct worker_msg *msg) {
    net_conn_evict(CONTAINER_OF(msg, struct net_conn, msg));
}

/* Its worker closes the connection; it is open, as it waits for its client: `msg` is free. */
static void post_evict(struct net_budget *budget, struct net_conn *conn) {
    net_budget_remove_conn(budget);
    atomic_fetch_add_explicit(&budget->n_leaving, 1, memory_order_relaxed);
    conn->msg.run = run_evict;
    worker_post(conn->server_worker->worker, &conn->msg);
}

static bool is_over_limit(const struct net_budget *budget, uint64_t n_more_bytes) {
    return atomic_load_explicit(&budget->n_conns, memory_order_relaxed) > budget->max_connections ||
           atomic_load_explicit(&budget->n_conn_bytes, memory_order_relaxed) + n_more_bytes >
               net_budget_conn_limit(budget) ||
           atomic_load_explicit(&budget->n_conn_extra_bytes, memory_order_relaxed) + n_more_bytes >
               2 * net_budget_conn_extra(budget);
}

/* Whom a place is for: a connection of `host`. */
struct place_search {
    uint64_t host;
    bool large_peers_only; /* none of peers with few connections goes for it */
    uint8_t n_tried;       /* so many that were found before have become busy */
};

/* Asks the kernel: a worker that has much to do, or has to wait with a client's next request, reads
 * the end later. */
static size_t choose_left(struct conn_entry *const *entries, size_t n) {
    struct pollfd polled[CONN_TABLE_LOOKED];
    for (size_t i = 0; i < n; i++) {
        polled[i] = (struct pollfd){
            .fd = atomic_load_explicit(&entries[i]->fd, memory_order_relaxed), .events = POLLRDHUP};
    }
    if (poll(polled, n, 0) <= 0) {
        return n;
    }
    size_t i = 0;
    while (i < n && (polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) {
        i++;
    }
    return i;
}

/* Idle ones of peers that have many go first, then those of such peers whose requests wait for
 * their client, then idle ones of peers that have as many as `host`, and at last those whose client
 * has closed its side. */
static struct conn_entry *find_place(struct conn_table *conns, const struct place_search *search) {
    uint64_t now_ns = clock_now_ns(), host = search->host;
    size_t n_kept = search->large_peers_only ? MAX_OF_SMALL_PEER : CONN_TABLE_KEPT;
    const struct conn_search of_large = {n_kept, now_ns};
    struct conn_entry *entry = conn_table_take_idle(conns, &of_large, now_ns);
    if (!entry) {
        entry = conn_table_take_waiting(conns, host);
    }
    if (!entry && !search->large_peers_only) {
        size_t n_of_host = conn_table_count(conns, host);
        const struct conn_search as_large = {n_of_host > 0 ? n_of_host - 1 : 0, now_ns};
        entry = conn_table_take_idle(conns, &as_large, now_ns);
        n_kept = as_large.n_kept;
    }
    return entry ? entry : conn_table_take_left(conns, n_kept, choose_left);
}

/* Gives the place of a connection of any server of the budget to another one: of an idle one, or of
 * one with an open request that waits for its client. Its worker closes it. Returns: false when
 * there is none. */
static bool take_place(struct net_server *server, const struct place_search *search) {
    struct net_budget *budget = server->budget;
    struct conn_entry *entry = find_place(&budget->conns, search);
    if (!entry) {
        return false;
    }
    entry->n_tried = search->n_tried;
    post_evict(budget, CONTAINER_OF(entry, struct net_conn, entry));
    return true;
}

size_t net_conn_limit_close_idle(struct net_budget *budget, size_t most) {
    uint64_t now_ns = clock_now_ns();
    const struct conn_search search = {MAX_OF_SMALL_PEER, now_ns - RELIEF_IDLE_NS};
    struct conn_entry *entry;
    size_t n = 0;
    while (n < most && (entry = conn_table_take_idle(&budget->conns, &search, now_ns))) {
        post_evict(budget, CONTAINER_OF(entry, struct net_conn, entry));
        n++;
    }
    return n;
}

void net_conn_limit_free_descriptors(struct net_server *server) {
    const struct place_search search = {.host = NO_HOST};
    for (size_t i = 0; i < MAX_FREED_DESCRIPTORS && take_place(server, &search); i++) {
    }
}

/* ---- a new connection ------------------------------------------------------------------------ */

/* A connection that its worker has not opened yet counts as busy, and makes no room for another
 * one. Asked before a place is looked for: once opened, it may be found. */
static bool has_opening(const struct net_budget *budget) {
    return atomic_load_explicit(&budget->n_opening, memory_order_acquire) > 0;
}

bool net_conn_limit_may_accept(const struct net_budget *budget) {
    uint64_t limit = net_budget_conn_limit(budget);
    uint64_t n_leaving = atomic_load_explicit(&budget->n_leaving, memory_order_relaxed);
    uint64_t n_bytes = atomic_load_explicit(&budget->n_conn_bytes, memory_order_relaxed);
    return n_leaving < net_budget_max_refusals(budget) &&
           !(has_opening(budget) && is_over_limit(budget, 0)) &&
           (n_leaving == 0 || n_bytes <= limit + limit / CONN_OVER_SHARE);
}

/* Where there are more connections than the limit, because others were accepted while some were
 * being opened, or were found busy when their place had been taken, more than one place is taken;
 * the new connection needs only one. Returns: whether it has one: or there are no more connections
 * than the limit now, as some may have been closed by their clients, and were not found for
 * that. */
static bool make_room(struct net_server *server, uint64_t n_over, uint64_t host) {
    const struct net_budget *budget = server->budget;
    const struct place_search search = {.host = host};
    bool is_far_over = n_over > net_budget_max_refusals(budget);
    uint64_t n_taken = 0;
    while (n_taken < n_over && n_taken < MAX_TAKEN_PLACES && take_place(server, &search)) {
        n_taken++;
    }
    return n_taken == n_over || (n_taken > 0 && !is_far_over) ||
           atomic_load_explicit(&budget->n_conns, memory_order_relaxed) <= budget->max_connections;
}

/* Where other memory than that of connections is used up, an idle one of a small peer would not
 * help. Those that were found busy have left too many: two go for one. */
static bool take_places(struct net_server *server, uint64_t host, uint64_t n_bytes) {
    const struct net_budget *budget = server->budget;
    const struct place_search search = {.host = host,
                                        .large_peers_only = !is_over_limit(budget, n_bytes)};
    uint64_t limit = net_budget_conn_limit(budget);
    bool is_far_over = atomic_load_explicit(&budget->n_conn_bytes, memory_order_relaxed) >
                       limit + limit / CONN_OVER_SHARE / 2;
    return take_place(server, &search) && (!is_far_over || take_place(server, &search));
}

/* Where other memory is used up, connections of peers with few have twice the extra of others, as
 * long as the kernel holds little more than its part. */
static bool may_exceed(struct net_budget *budget, uint64_t host, uint64_t n_bytes) {
    uint64_t limit = net_budget_limit(budget);
    return !is_over_limit(budget, n_bytes) &&
           atomic_load_explicit(&budget->n_bytes, memory_order_relaxed) <= limit + limit / 4 &&
           conn_table_count(&budget->conns, host) < MAX_OF_SMALL_PEER;
}

/* Takes the memory of a new connection of `host`, if need be that of another one, which is closed.
 * Returns: whether it has it. */
static bool take_memory(struct net_server *server, uint64_t n_bytes, uint64_t host) {
    struct net_budget *budget = server->budget;
    bool waits = has_opening(budget) && is_over_limit(budget, n_bytes);
    if (net_budget_take_conn(budget, n_bytes)) {
        return true;
    }
    if (atomic_load_explicit(&budget->n_conns, memory_order_relaxed) <= NET_BUDGET_FREE_CONNS ||
        take_places(server, host, n_bytes) || may_exceed(budget, host, n_bytes) || waits) {
        net_budget_force_conn(budget, n_bytes);
        return true;
    }
    return false;
}

enum net_admission net_conn_limit_admit(struct net_server *server, uint64_t host) {
    struct net_budget *budget = server->budget;
    bool is_opening = has_opening(budget);
    bool has_place = make_room(server, net_budget_add_conn(budget), host) || is_opening;
    if (has_place && take_memory(server, server->protocol->conn_memory_bytes, host)) {
        return NET_ADMITTED;
    }
    net_budget_remove_conn(budget);
    return has_place ? NET_NO_MEMORY : NET_OVER_LIMIT;
}

bool net_conn_take_memory(struct net_conn *conn, enum memory_conn_kind kind, uint64_t n_bytes) {
    if (memory_conn_add(conn->account, kind, n_bytes)) {
        return true;
    }
    struct net_server *server = conn->server_worker->server;
    if (take_places(server, conn->host, n_bytes) ||
        may_exceed(server->budget, conn->host, n_bytes)) {
        memory_conn_hold(conn->account, kind, n_bytes);
        return true;
    }
    return false;
}

bool net_conn_limit_extend(struct net_conn *conn, uint64_t n_bytes) {
    struct net_server *server = conn->server_worker->server;
    bool fits = take_memory(server, n_bytes, conn->host);
    if (!fits) {
        net_budget_force_conn(server->budget, n_bytes);
    }
    return fits;
}

/* ---- closing the one that was chosen --------------------------------------------------------- */

enum { SLOW_WRITE_BYTES = 16384 };
static const uint64_t SLOW_WRITE_NS = UINT64_C(500000000);

static void log_closed_for_another(struct net_conn *conn) {
    struct log_limit *log = &conn->server_worker->closed_log;
    char peer[ADDRESS_TEXT_BYTES];
    if (log_limit_allow(log)) {
        log_event(LOG_WARNING,
                  "connection closed for another one: no memory or place for more "
                  "(--client-memory, --max-connections), and its requests wait for their client",
                  LOG_CSTR("peer", net_conn_peer(conn, peer)),
                  LOG_CSTR("protocol", conn->protocol->name),
                  LOG_U64("suppressed", log->n_suppressed));
        log->n_suppressed = 0;
    }
}

/* Whether the client has taken little of what waits for the socket. */
static bool reads_slowly(const struct net_conn *conn) {
    uint64_t after_ns = conn->server_worker->conn_timers.after_ns[NET_TIMEOUT_WRITE];
    return conn->timeout.armed && conn->timeout.timer_class == NET_TIMEOUT_WRITE &&
           clock_now_ns() - (conn->timeout.due_ns - after_ns) >= SLOW_WRITE_NS &&
           net_bytes_since(net_conn_taken_bytes(conn), conn->n_taken_at_arm) < SLOW_WRITE_BYTES;
}

/* Its requests wait for the client, as they did when its place was taken. */
static bool still_waits(const struct net_conn *conn) {
    const struct net_protocol *protocol = conn->protocol;
    if (!conn->entry.was_waiting || !conn_entry_is_waiting(&conn->entry)) {
        return false;
    }
    if (conn->timeout.armed && conn->timeout.timer_class == NET_TIMEOUT_BODY) {
        return true;
    }
    return reads_slowly(conn) || (protocol->waits_for_client && protocol->waits_for_client(conn));
}

/* What a client sent before it half-closed, and what has not begun of it, is dropped. */
static bool still_idle(const struct net_conn *conn) {
    bool has_input = conn->turn.queued || conn->pending_input || net_conn_has_unread(conn);
    return conn_entry_is_idle(&conn->entry) && (!has_input || conn->eof);
}

/* Whether the client has closed its side, which was not read yet, and has all that was sent. */
static bool has_left(const struct net_conn *conn) {
    uv_os_fd_t fd;
    if (!conn->entry.had_left || uv_fileno(&conn->uv.handle, &fd) != 0) {
        return false;
    }
    struct pollfd polled = {.fd = fd, .events = POLLRDHUP};
    return poll(&polled, 1, 0) == 1 && net_conn_taken_bytes(conn) == conn->n_written;
}

/* It has become busy: it is open as before, and another one is closed, where there are still too
 * many. */
static void keep_place(struct net_conn *conn) {
    struct net_server *server = conn->server_worker->server;
    struct net_budget *budget = server->budget;
    (void)net_budget_add_conn(budget);
    atomic_fetch_sub_explicit(&budget->n_leaving, 1, memory_order_relaxed);
    uint8_t n_tried = conn->entry.n_tried;
    if (conn->entry.was_waiting && conn_entry_is_waiting(&conn->entry)) {
        net_conn_set_waiting_now(conn); /* others are looked at before it */
    }
    conn_table_add(&budget->conns, &conn->entry, conn->host);
    if (n_tried < MAX_TRIED_PLACES && is_over_limit(budget, 0)) {
        take_place(server, &(struct place_search){.n_tried = (uint8_t)(n_tried + 1)});
    }
}

void net_conn_evict(struct net_conn *conn) {
    bool is_open = conn->phase == NET_OPEN;
    conn->entry.called = false;
    if (conn->closed) {
        net_conn_free_if_unused(conn);
    } else if (is_open && still_waits(conn)) {
        metric_add(METRIC_WAITING_CONNECTIONS_CLOSED_TOTAL, 1);
        log_closed_for_another(conn);
        net_conn_close(conn);
    } else if (is_open && has_left(conn)) {
        metric_add(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL, 1);
        net_conn_close(conn);
    } else if (is_open && (conn->entry.was_waiting || !still_idle(conn))) {
        keep_place(conn); /* one that waited was busy meanwhile, even if it is idle now */
    } else if (conn->phase == NET_LINGER && net_conn_is_sending(conn)) {
        keep_place(conn); /* the rest of a response, which the write timeout limits */
    } else if (is_open && conn->protocol->on_evict && !net_tls_in_handshake(conn)) {
        metric_add(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL, 1);
        conn->protocol->on_evict(conn);
        net_conn_update_io(conn);
    } else if (conn->phase != NET_CLOSED) {
        metric_add(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL, 1);
        net_conn_close(conn);
    }
}
