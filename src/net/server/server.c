/* A server as a whole: which connection goes to which worker, and how all of it ends. It refuses to
 * touch a connection: those belong to their workers. */
#include "net/server/server.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/server/listener.h"
#include "net/server/tls/conn.h"

/* So many connections over the limit are told why; the rest is closed at once. */
enum { REFUSALS_AT_ONCE = 256 };

enum status net_server_init(struct net_server *server, const struct net_server_options *options,
                            struct error *err) {
    assert(options->n_workers > 0);
    struct server_worker *workers = calloc(options->n_workers, sizeof(*workers));
    if (!workers) {
        return error_set(err, ST_NO_MEMORY, "no memory for a server");
    }
    *server = (struct net_server){
        .protocol = options->protocol,
        .limits = options->limits,
        .budget = options->budget,
        .acceptor = options->acceptor,
        .workers = workers,
        .n_workers = options->n_workers,
    };
    for (size_t i = 0; i < server->n_workers; i++) {
        server_worker_init(&workers[i], server, options->workers[i]);
    }
    return ST_OK;
}

void net_server_fini(struct net_server *server) {
    assert(server->n_listen_endpoints == 0 || (server->stopping && server->n_open == 0));
    for (size_t i = 0; i < server->n_workers; i++) {
        server_worker_fini(&server->workers[i]);
    }
    for (size_t i = 0; i < server->n_listen_endpoints; i++) {
        free(server->listen_endpoints[i]);
    }
    free(server->workers);
    free(server->listen_endpoints);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* The one with the fewest connections; in turn among equals. */
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
    net_conn_open((struct net_conn *)(void *)((char *)msg - offsetof(struct net_conn, msg)));
}

/* Returns: NULL when out of memory. */
static struct net_conn *conn_new(const struct listen_endpoint *listen_endpoint) {
    struct net_conn *conn = calloc(1, listen_endpoint->server->protocol->conn_bytes);
    if (conn && listen_endpoint->tls && !net_tls_attach(conn, listen_endpoint->tls)) {
        free(conn);
        return NULL;
    }
    return conn;
}

static void on_accept(void *user, int fd, int family) {
    const struct listen_endpoint *listen_endpoint = user;
    struct net_server *server = listen_endpoint->server;
    uint64_t n_over = net_budget_add_conn(server->budget);
    struct net_conn *conn = n_over <= REFUSALS_AT_ONCE ? conn_new(listen_endpoint) : NULL;
    if (!conn) {
        close(fd);
        net_budget_remove_conn(server->budget);
        return;
    }
    conn->protocol = server->protocol;
    conn->listen_endpoint = listen_endpoint;
    conn->server_worker = worker_choose(server);
    conn->fd = fd;
    conn->is_unix = family == AF_UNIX;
    conn->over_limit = n_over > 0;
    conn->msg.run = run_open;
    atomic_fetch_add_explicit(&conn->server_worker->n_assigned_conns, 1, memory_order_relaxed);
    if (conn->server_worker->worker == server->acceptor) {
        net_conn_open(conn);
    } else {
        worker_post(conn->server_worker->worker, &conn->msg);
    }
}

uint64_t net_server_in_flight(const struct net_server *server) {
    uint64_t n = 0;
    for (size_t i = 0; i < server->n_workers; i++) {
        n += atomic_load_explicit(&server->workers[i].in_flight, memory_order_relaxed);
    }
    return n;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void on_one_closed(struct net_server *server) {
    assert(server->n_open > 0);
    if (--server->n_open == 0 && server->stopping) {
        server->done(server->user);
    }
}

static void on_listener_closed(void *user) {
    on_one_closed(((const struct listen_endpoint *)user)->server);
}

void net_server_on_worker_stopped(struct net_server *server) {
    on_one_closed(server);
}

/* Room for one more. Returns: NULL when out of memory. */
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

enum status net_server_listen(struct net_server *server, const struct address *address,
                              const struct tls_server *tls, const void *user, struct address *bound,
                              struct error *err) {
    struct listen_endpoint *listen_endpoint = listen_endpoint_new(server, tls, user);
    if (!listen_endpoint) {
        return error_set(err, ST_NO_MEMORY, "no memory for a listener");
    }
    struct listener_events events = {
        .on_accept = on_accept, .on_closed = on_listener_closed, .user = listen_endpoint};
    enum status st = listener_open(worker_loop(server->acceptor), address, &events,
                                   &listen_endpoint->listener, bound, err);
    if (st != ST_OK) {
        free(listen_endpoint);
        return st;
    }
    address_print(bound, listen_endpoint->text);
    server->listen_endpoints[server->n_listen_endpoints++] = listen_endpoint;
    server->n_open++;
    return ST_OK;
}

void net_server_drain(struct net_server *server) {
    if (atomic_load(&server->draining) || server->stopping) {
        return;
    }
    atomic_store(&server->draining, true);
    for (size_t i = 0; i < server->n_workers; i++) {
        worker_post(server->workers[i].worker, &server->workers[i].drain_msg);
    }
}

void net_server_stop(struct net_server *server, void (*done)(void *user), void *user) {
    if (server->stopping) {
        return;
    }
    server->stopping = true;
    server->done = done;
    server->user = user;
    server->n_open += server->n_workers;
    for (size_t i = 0; i < server->n_listen_endpoints; i++) {
        listener_close(server->listen_endpoints[i]->listener);
    }
    for (size_t i = 0; i < server->n_workers; i++) {
        worker_post(server->workers[i].worker, &server->workers[i].stop_msg);
    }
}
