/* Asks the kernel with SO_MEMINFO, which counts what buffers take, not their payload. */
#include "net/server/socket_memory.h"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "core/event/clock.h"
#include "net/server/conn.h"
#include "net/server/server.h"

enum { MAX_MEASURED = 1000 }; /* in one event-loop iteration: takes some 0.3 ms */

static const uint64_t MEASURE_AGAIN_NS = UINT64_C(100000000);

void server_sockets_init(struct server_sockets *sockets) {
    TAILQ_INIT(&sockets->conns);
    sockets->due_ns = UINT64_MAX;
}

/* Returns: bytes; 0 where the kernel does not say. */
static uint64_t measure(struct net_conn *conn) {
    conn->socket.n_out_bytes = 0;
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t len = sizeof(info);
    uv_os_fd_t fd;
    if (uv_fileno(&conn->uv.handle, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) != 0) {
        return 0;
    }
    /* A Unix socket's output is in the buffer of its peer, and only counted as allocated. */
    uint32_t out = conn->is_unix ? info[SK_MEMINFO_WMEM_ALLOC] : info[SK_MEMINFO_WMEM_QUEUED];
    uint64_t n_bytes = (uint64_t)info[SK_MEMINFO_RMEM_ALLOC] + out;
    conn->socket.n_out_bytes = out >= SOCKET_MIN_BYTES ? out : 0;
    return n_bytes >= SOCKET_MIN_BYTES ? n_bytes : 0;
}

static void list_add(struct net_conn *conn) {
    struct server_sockets *sockets = &conn->server_worker->sockets;
    if (conn->socket.listed) {
        return;
    }
    conn->socket.listed = true;
    TAILQ_INSERT_TAIL(&sockets->conns, conn, socket.link);
    if (sockets->due_ns == UINT64_MAX) {
        sockets->due_ns = clock_now_ns() + MEASURE_AGAIN_NS;
        server_worker_schedule_timer(conn->server_worker, sockets->due_ns);
    }
}

static void list_remove(struct net_conn *conn) {
    if (conn->socket.listed) {
        conn->socket.listed = false;
        TAILQ_REMOVE(&conn->server_worker->sockets.conns, conn, socket.link);
    }
}

/* Returns: whether it is to be measured again. */
static bool count(struct net_conn *conn) {
    uint64_t n_bytes = measure(conn);
    conn->socket.n_written = conn->n_written;
    memory_conn_set_socket(conn->account, n_bytes);
    return n_bytes > 0 || !conn->reading;
}

void conn_socket_update(struct net_conn *conn) {
    bool is_due = conn_socket_is_due(&conn->socket, conn->n_written, conn->account);
    if (!is_due || count(conn)) {
        list_add(conn);
    } else {
        list_remove(conn);
    }
}

/* Whether its socket holds output whose memory others would need. HTTP/2 has back pressure of its
 * own, and many clients on one connection. */
static bool must_hold(struct net_conn *conn) {
    uint64_t n_bytes = conn->socket.n_out_bytes;
    if (n_bytes == 0 || conn->protocol->unsent ||
        !net_budget_is_tight(conn->server_worker->server->budget)) {
        return false;
    }
    memory_relieve(conn->account, n_bytes);
    return true;
}

bool conn_socket_is_held(struct net_conn *conn) {
    if (conn->n_written - conn->socket.n_written >= SOCKET_BURST_BYTES && count(conn)) {
        list_add(conn);
    }
    conn->socket.held = must_hold(conn);
    return conn->socket.held;
}

void conn_socket_wait(struct net_conn *conn) {
    list_add(conn);
}

/* What the kernel does not take waits in the server, where it counts once for all clients of a
 * page, and as a response that others may need the memory of. */
void conn_socket_limit_output(struct net_conn *conn) {
    const struct net_budget *budget = conn->server_worker->server->budget;
    bool limits = net_budget_is_tight(budget);
    int n_bytes = limits ? SOCKET_UNSENT_TIGHT_BYTES : server_unsent_bytes(budget);
    uv_os_fd_t fd;
    if (limits != conn->socket.is_limited && !conn->is_unix &&
        uv_fileno(&conn->uv.handle, &fd) == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &n_bytes, sizeof(n_bytes));
        conn->socket.is_limited = limits;
    }
}

void conn_socket_end(struct net_conn *conn) {
    list_remove(conn);
    memory_conn_set_socket(conn->account, 0);
}

uint64_t server_sockets_on_timer(struct server_worker *server_worker, uint64_t now_ns) {
    struct server_sockets *sockets = &server_worker->sockets;
    struct net_conn *conn, *first = NULL;
    if (now_ns < sockets->due_ns) {
        return sockets->due_ns;
    }
    size_t n = 0;
    while (n < MAX_MEASURED && (conn = TAILQ_FIRST(&sockets->conns)) && conn != first) {
        list_remove(conn);
        if (count(conn)) {
            conn->socket.listed = true;
            TAILQ_INSERT_TAIL(&sockets->conns, conn, socket.link);
            first = first ? first : conn;
        }
        if (conn->socket.held && !must_hold(conn)) {
            conn->socket.held = false;
            server_worker_schedule_resume(server_worker, conn);
        }
        n++;
    }
    sockets->due_ns = TAILQ_EMPTY(&sockets->conns) ? UINT64_MAX : now_ns + MEASURE_AGAIN_NS;
    return sockets->due_ns;
}
