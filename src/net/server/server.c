/* The server as a whole: it accepts connections and assigns them to workers. */
#include "net/server/server.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "net/server/call.h"
#include "net/server/conn_limit.h"
#include "net/server/listener.h"
#include "net/server/tls/conn.h"

static const uint64_t REFUSAL_GAP_NS = 1000000000u;

/* ---- creating and freeing -------------------------------------------------------------------- */

enum status net_server_init(struct net_server *server, const struct net_server_options *options,
                            struct error *err) {
    assert(options->n_workers > 0);
    struct server_worker *workers = calloc(options->n_workers, sizeof(*workers));
    if (!workers) {
        return error_no_memory(err, "a server");
    }
    *server = (struct net_server){
        .protocol = options->protocol,
        .conn_bytes = options->protocol->conn_bytes,
        .limits = options->limits,
        .budget = options->budget,
        .acceptor = options->acceptor,
        .workers = workers,
        .n_workers = options->n_workers,
    };
    const struct net_server *other = options->other;
    if (other && other->protocol->conn_bytes > server->conn_bytes) {
        server->conn_bytes = other->protocol->conn_bytes;
    }
    for (size_t i = 0; i < server->n_workers; i++) {
        server_worker_init(&workers[i], server, options->workers[i]);
    }
    conn_table_init(&server->budget->conns);
    server->budget_user = (struct net_budget_user){.protocol = options->protocol->name,
                                                   .relieve = net_server_relieve,
                                                   .relieve_pages = net_server_relieve_pages,
                                                   .add_use = net_server_add_use};
    net_budget_add_user(server->budget, &server->budget_user);
    return ST_OK;
}

void net_server_fini(struct net_server *server) {
    assert(server->n_listen_endpoints == 0 || (server->stopping && server->n_open == 0));
    net_budget_remove_user(server->budget, &server->budget_user);
    for (size_t i = 0; i < server->n_workers; i++) {
        server_worker_fini(&server->workers[i]);
    }
    for (size_t i = 0; i < server->n_listen_endpoints; i++) {
        free(server->listen_endpoints[i]);
    }
    free(server->workers);
    free(server->listen_endpoints);
}

/* ---- accepting connections ------------------------------------------------------------------- */

/* Returns: the worker with the fewest connections; round robin among equals. */
static struct server_worker *worker_choose(struct net_server *server) {
    struct server_worker *best = NULL;
    uint64_t best_load = UINT64_MAX;
    assert(server->n_workers > 0);
    for (size_t i = 0; i < server->n_workers; i++) {
        struct server_worker *server_worker =
            &server->workers[(server->next_worker + i) % server->n_workers];
        uint64_t load =
            atomic_load_explicit(&server_worker->n_assigned_conns, memory_order_relaxed);
        if (load < best_load) {
            best = server_worker;
            best_load = load;
        }
    }
    server->next_worker = (server->next_worker + 1) % server->n_workers;
    return best;
}

static void run_open(struct worker_msg *msg) {
    struct net_conn *conn = CONTAINER_OF(msg, struct net_conn, msg);
    struct net_budget *budget = conn->server_worker->server->budget;
    bool is_admitted = conn->admission == NET_ADMITTED;
    net_conn_open(conn);
    if (is_admitted) {
        atomic_fetch_sub_explicit(&budget->n_opening, 1, memory_order_release);
    }
}

/* Returns: NULL when out of memory. */
static struct net_conn *conn_new(const struct listen_endpoint *listen_endpoint) {
    const struct net_protocol *protocol = listen_endpoint->server->protocol;
    struct net_conn *conn = calloc(1, listen_endpoint->server->conn_bytes);
    if (!conn || (listen_endpoint->tls && !net_tls_attach(conn, listen_endpoint->tls))) {
        free(conn);
        return NULL;
    }
    conn->protocol = protocol;
    conn->listen_endpoint = listen_endpoint;
    conn->server_worker = worker_choose(listen_endpoint->server);
    write_queue_init(&conn->writes);
    conn->turn.run = net_conn_run_turn;
    if (protocol->init) {
        protocol->init(conn);
    }
    return conn;
}

/* While so many connections wait for a turn of a worker, further ones wait in the backlog, but for
 * some in each millisecond. */
enum { MAX_WAITING_TURNS = 128, MAX_ACCEPTED_SLOWLY = 4 };

/* What clients have sent and no worker has read yet is in the kernel's buffers, up to 128 KiB for
 * each; of a connection in the backlog it does not count as memory of the process. */
static bool has_many_turns(const struct net_server *server) {
    for (size_t i = 0; i < server->n_workers; i++) {
        if (loop_iteration_n_turns(worker_loop_iteration(server->workers[i].worker)) >
            MAX_WAITING_TURNS) {
            return true;
        }
    }
    return false;
}

/* Returns: whether one more may be accepted in this millisecond, of the few while many turns are
 * waited for: so new ones get one as well where clients always have more to be read. */
static bool may_accept_slowly(struct net_server *server) {
    uint64_t now_ms = clock_now_ns() / 1000000;
    if (now_ms != server->slowly_ms) {
        server->slowly_ms = now_ms;
        server->n_accepted_slowly = 0;
    }
    return server->n_accepted_slowly++ < MAX_ACCEPTED_SLOWLY;
}

static bool may_accept(void *user) {
    const struct listen_endpoint *listen_endpoint = user;
    return net_conn_limit_may_accept(listen_endpoint->server->budget) &&
           (!has_many_turns(listen_endpoint->server) || may_accept_slowly(listen_endpoint->server));
}

static void on_no_descriptors(void *user) {
    net_conn_limit_free_descriptors(((const struct listen_endpoint *)user)->server);
}

/* A gRPC client that got SETTINGS and then GOAWAY connects again at once, and without an error for
 * its calls; one whose connection was closed before waits, longer each time, and fails its calls.
 * So only the first in a second gets the reason. Returns: whether this one does. */
static bool takes_to_refuse(struct net_server *server) {
    struct net_budget *budget = server->budget;
    uint64_t now_ns = clock_now_ns();
    if (atomic_load_explicit(&budget->n_refused, memory_order_relaxed) >=
            net_budget_max_refusals(budget) ||
        (server->protocol->refusal_invites_retry && server->refused_ns > 0 &&
         now_ns - server->refused_ns < REFUSAL_GAP_NS)) {
        return false;
    }
    server->refused_ns = now_ns;
    return true;
}

static void on_accept(void *user, int fd, int family, uint64_t host) {
    const struct listen_endpoint *listen_endpoint = user;
    struct net_server *server = listen_endpoint->server;
    struct net_budget *budget = server->budget;
    enum net_admission admission = net_conn_limit_admit(server, host);
    if (admission != NET_ADMITTED && !takes_to_refuse(server)) {
        close(fd);
        metric_add(METRIC_CONNECTIONS_REFUSED_TOTAL, 1);
        return;
    }
    if (admission != NET_ADMITTED) {
        net_budget_add_refused(budget);
    }
    struct net_conn *conn = conn_new(listen_endpoint);
    if (!conn) {
        close(fd);
        if (admission != NET_ADMITTED) {
            net_budget_remove_refused(budget);
        } else {
            net_budget_remove_conn(budget);
            net_budget_give_conn(budget, server->protocol->conn_memory_bytes);
        }
        return;
    }
    conn->fd = fd;
    conn->is_unix = family == AF_UNIX;
    conn->host = host;
    conn->admission = (uint8_t)admission;
    conn_entry_set_idle(&conn->entry, CONN_BUSY); /* until it is open */
    conn_entry_set_waiting(&conn->entry, CONN_BUSY);
    conn_entry_set_fd(&conn->entry, -1);
    conn_table_add(&budget->conns, &conn->entry, host);
    atomic_fetch_add_explicit(&conn->server_worker->n_assigned_conns, 1, memory_order_relaxed);
    if (conn->server_worker->worker == server->acceptor) {
        net_conn_open(conn);
    } else {
        if (admission == NET_ADMITTED) {
            atomic_fetch_add_explicit(&budget->n_opening, 1, memory_order_relaxed);
        }
        conn->msg.run = run_open;
        worker_post(conn->server_worker->worker, &conn->msg);
    }
}

/* ---- listening ------------------------------------------------------------------------------- */

static void on_listener_closed(void *user) {
    net_server_on_one_closed(((const struct listen_endpoint *)user)->server);
}

/* Allocates an endpoint and a slot for it. Returns: NULL when out of memory. */
static struct listen_endpoint *listen_endpoint_new(struct net_server *server,
                                                   const struct tls_server *tls, const void *user) {
    size_t n = server->n_listen_endpoints;
    struct listen_endpoint **listen_endpoints =
        realloc(server->listen_endpoints, (n + 1) * sizeof(struct listen_endpoint *));
    if (!listen_endpoints) {
        return NULL;
    }
    server->listen_endpoints = listen_endpoints;
    struct listen_endpoint *listen_endpoint = calloc(1, sizeof(*listen_endpoint));
    if (listen_endpoint) {
        listen_endpoint->server = server;
        listen_endpoint->tls = tls;
        listen_endpoint->user = user;
    }
    return listen_endpoint;
}

/* Says when the memory for connections suffices for fewer than --max-connections. */
static void log_fitting_connections(const struct listen_endpoint *listen_endpoint) {
    const struct net_server *server = listen_endpoint->server;
    const struct net_budget *budget = server->budget;
    uint64_t n_bytes = server->protocol->conn_memory_bytes +
                       (listen_endpoint->tls ? NET_TLS_SESSION_MEMORY_BYTES : 0);
    uint64_t n_fitting = net_budget_conn_limit(budget) / n_bytes;
    n_fitting = n_fitting > NET_BUDGET_FREE_CONNS ? n_fitting : NET_BUDGET_FREE_CONNS;
    if (n_fitting < budget->max_connections) {
        log_event(LOG_INFO, "fewer connections than --max-connections, for half of --client-memory",
                  LOG_CSTR("listener", listen_endpoint->text),
                  LOG_CSTR("protocol", server->protocol->name),
                  LOG_U64("max_connections", budget->max_connections), LOG_U64("used", n_fitting),
                  LOG_U64("bytes_each", n_bytes));
    }
}

enum status net_server_listen(struct net_server *server, const struct address *address,
                              const struct tls_server *tls, const void *user, struct address *bound,
                              struct error *err) {
    struct listen_endpoint *listen_endpoint = listen_endpoint_new(server, tls, user);
    if (!listen_endpoint) {
        return error_no_memory(err, "a listener");
    }
    struct listener_events events = {.on_accept = on_accept,
                                     .may_accept = may_accept,
                                     .on_no_descriptors = on_no_descriptors,
                                     .on_closed = on_listener_closed,
                                     .user = listen_endpoint};
    struct socket_bytes sizes = {server_receive_bytes(server->budget),
                                 server_unsent_bytes(server->budget)};
    enum status st = listener_open(worker_loop(server->acceptor), address, &server->limits, sizes,
                                   &events, &listen_endpoint->listener, bound, err);
    if (st != ST_OK) {
        free(listen_endpoint);
        return st;
    }
    bool is_tcp = !address_is_unix(bound);
    listen_endpoint->web =
        (struct web_listener){is_tcp, is_tcp && address_is_local(bound), address_port(bound)};
    address_print(bound, listen_endpoint->text);
    log_fitting_connections(listen_endpoint);
    server->listen_endpoints[server->n_listen_endpoints++] = listen_endpoint;
    server->n_open++;
    return ST_OK;
}
