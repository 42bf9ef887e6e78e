/* The base of the servers of all protocols: it accepts connections and gives each to the worker
 * with the fewest; a worker's part of it has the connections (conn.h), a timer, timeouts and
 * buffers. A protocol (protocol.h) is a table of functions. Internal to net/server.
 *
 * Thread: the worker's, for a worker; the acceptor's for the server's own functions, unless stated
 * otherwise. */
#ifndef SLUICE_NET_SERVER_SERVER_H
#define SLUICE_NET_SERVER_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "codec/http1/web_access.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/piece.h"
#include "core/base/random.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/timer.h"
#include "core/event/worker.h"
#include "core/os/log_limit.h"
#include "net/server/limits.h"
#include "net/server/protocol.h"
#include "net/server/response_memory.h"
#include "net/server/socket_memory.h"
#include "net/server/write_queue.h"
#include "net/transport/address.h"
#include "net/transport/body_pool.h"
#include "net/transport/budget.h"
#include "net/transport/memory_account.h"

struct net_call;
struct net_conn;
struct net_server;
struct server_worker;
struct net_tls;
struct server_worker_tls;
struct tls_server;

/* A worker's part of a server. */
struct server_worker {
    struct net_server *server;
    struct worker *worker;
    LIST_HEAD(, net_conn) conns;
    struct net_call *ended; /* freed at the end of the iteration */
    size_t n_conns, n_calls;
    LIST_HEAD(, net_conn) slices_due; /* connections whose next slice of a response is due */
    struct deferred_task send_slices;
    uv_timer_t timer;
    uint64_t timer_due_ns;
    struct late_timer late_timer;
    bool timed_out_late;                 /* those that client_timers_turn runs were late */
    struct loop_turn client_timers_turn; /* after the connections that wait for a turn */
    struct deferred_task deferred;
    struct timer_list conn_timers;
    struct prng prng; /* of net_age_with_jitter */
    struct body_pool pool;
    struct server_memory memory;
    struct server_sockets sockets;
    struct server_worker_tls *tls; /* NULL: no TLS connection yet */
    char *in;                      /* NET_READ_BYTES */
    char *out;                     /* NET_COALESCE_BUFFER_BYTES */
    size_t out_len;
    struct net_conn *out_conn;   /* the connection of the coalesced responses */
    struct log_limit closed_log; /* of connections closed for others */
    struct net_conn *drain_next; /* of those that are told of the drain in drain_turn */
    struct loop_turn drain_turn;
    bool started, stopping, done;
    bool drains; /* not all connections were told; one of net_server.n_telling */
    struct worker_msg drain_msg, stop_msg, done_msg;
    _Atomic uint64_t n_assigned_conns; /* connections assigned to this worker */
    _Atomic uint64_t in_flight;        /* number of calls */
};

/* One of the addresses that a server listens on. */
struct listen_endpoint {
    struct net_server *server;
    struct listener *listener;
    const void *user;             /* identifies the endpoint's connections for the protocol */
    const struct tls_server *tls; /* NULL: no TLS */
    struct web_listener web;
    char text[ADDRESS_TEXT_BYTES];
};

struct net_server_options {
    const struct net_protocol *protocol;
    /* A connection may move to this server (net_conn_move), which has the same workers and the same
     * budget; NULL: to none. */
    struct net_server *other;
    struct net_limits limits;
    struct net_budget *budget;
    struct worker *const *workers;
    size_t n_workers;
    struct worker *acceptor;
};

/* First member of a protocol's server. */
struct net_server {
    const struct net_protocol *protocol;
    size_t conn_bytes; /* of a connection: of either protocol, if it may move */
    struct net_limits limits;
    struct net_budget *budget;
    struct net_budget_user budget_user;
    struct worker *acceptor;
    struct server_worker *workers;
    size_t n_workers;
    size_t next_worker; /* where the search for the least loaded worker begins */
    struct listen_endpoint **listen_endpoints;
    size_t n_listen_endpoints;
    size_t n_open;       /* listeners and workers that are not stopped */
    uint64_t refused_ns; /* when a connection was last refused with an error */
    uint64_t slowly_ms;  /* when connections were last accepted slowly, and how many */
    unsigned n_accepted_slowly;
    /* Set for all workers at once, before any of them closes idle connections. */
    atomic_bool draining;
    _Atomic uint64_t n_telling; /* workers that have not told all connections of the drain */
    bool stopping;
    void (*done)(void *user);
    void *user;
};

static inline bool server_worker_is_draining(const struct server_worker *server_worker) {
    return atomic_load_explicit(&server_worker->server->draining, memory_order_relaxed);
}

/* Returns: the index of a worker in its server. */
static inline size_t server_worker_index(const struct server_worker *server_worker) {
    return (size_t)(server_worker - server_worker->server->workers);
}

/* ---- server.c: the server as a whole --------------------------------------------------------- */

/* Initialises zeroed memory. Returns: ST_NO_MEMORY. Owns: net_server_fini. */
enum status net_server_init(struct net_server *server, const struct net_server_options *options,
                            struct error *err) SLUICE_MUST_USE;
/* After `done` of net_server_stop, or if the server never listened. */
void net_server_fini(struct net_server *server);
/* As http_server_listen; listen_endpoint->user of its connections is `user`. `tls` may be NULL and
 * must outlive the server's stop. */
enum status net_server_listen(struct net_server *server, const struct address *address,
                              const struct tls_server *tls, const void *user, struct address *bound,
                              struct error *err) SLUICE_MUST_USE;

/* ---- server_worker.c ------------------------------------------------------------------------- */

/* Initialises zeroed memory of a server's worker. Owns: server_worker_fini. */
void server_worker_init(struct server_worker *server_worker, struct net_server *server,
                        struct worker *worker);
/* Without connections and calls. */
void server_worker_fini(struct server_worker *server_worker);
/* Opens the worker's handles, on its thread. Returns: false when out of memory. */
bool server_worker_start(struct server_worker *server_worker);
void server_worker_add_conn(struct server_worker *server_worker, struct net_conn *conn);
void server_worker_remove_conn(struct server_worker *server_worker, struct net_conn *conn);
/* Returns: the time from which it runs; 0 for NET_TIMEOUT_NONE. */
uint64_t server_worker_set_conn_timer(struct server_worker *server_worker, struct net_conn *conn,
                                      enum net_timeout timeout);
/* Starts the timer of net_conn_probe. */
void server_worker_start_keepalive(struct server_worker *server_worker, struct net_conn *conn);
/* Runs on_timer at that time or earlier. */
void server_worker_schedule_timer(struct server_worker *server_worker, uint64_t due_ns);
/* Frees ended calls; no callback that uses one may be on the stack. */
void server_worker_free_ended_calls(struct server_worker *server_worker);
/* Schedules the protocol's run_deferred and the freeing of ended calls for the end of this
 * event-loop iteration. */
void server_worker_schedule_deferred(struct server_worker *server_worker);
/* Queues the connection for a turn in the event loop: it then goes on with its pending input, or is
 * read. Until then it is not read. */
void server_worker_schedule_resume(struct server_worker *server_worker, struct net_conn *conn);

/* ---- shutdown.c ------------------------------------------------------------------------------ */

/* Sets what a drain and a stop run on the worker. */
void server_worker_init_shutdown(struct server_worker *server_worker);
/* Closes the worker's timer once it is stopped and has no connections and no calls. */
void server_worker_close_if_done(struct server_worker *server_worker);
/* A listener or a worker has closed its last handle. Thread: the acceptor's. */
void net_server_on_one_closed(struct net_server *server);

#endif
