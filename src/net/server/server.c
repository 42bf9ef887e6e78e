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
    struct net_shard *shards = calloc(options->n_workers, sizeof(*shards));
    if (!shards) {
        return error_set(err, ST_NO_MEMORY, "no memory for a server");
    }
    *server = (struct net_server){
        .protocol = options->protocol,
        .limits = options->limits,
        .budget = options->budget,
        .acceptor = options->acceptor,
        .shards = shards,
        .n_shards = options->n_workers,
    };
    for (size_t i = 0; i < server->n_shards; i++) {
        net_shard_init(&shards[i], server, options->workers[i]);
    }
    return ST_OK;
}

void net_server_fini(struct net_server *server) {
    assert(server->n_entrances == 0 || (server->stopping && server->n_open == 0));
    for (size_t i = 0; i < server->n_shards; i++) {
        net_shard_fini(&server->shards[i]);
    }
    for (size_t i = 0; i < server->n_entrances; i++) {
        free(server->entrances[i]);
    }
    free(server->shards);
    free(server->entrances);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* The one with the fewest connections; in turn among equals. */
static struct net_shard *shard_choose(struct net_server *server) {
    struct net_shard *best = NULL;
    uint64_t best_load = UINT64_MAX;
    assert(server->n_shards > 0);
    for (size_t i = 0; i < server->n_shards; i++) {
        struct net_shard *shard = &server->shards[(server->next_shard + i) % server->n_shards];
        uint64_t load = atomic_load_explicit(&shard->load, memory_order_relaxed);
        if (load < best_load) {
            best = shard;
            best_load = load;
        }
    }
    server->next_shard = (server->next_shard + 1) % server->n_shards;
    return best;
}

static void run_open(struct worker_msg *msg) {
    net_conn_open((struct net_conn *)(void *)((char *)msg - offsetof(struct net_conn, msg)));
}

/* Returns: NULL when out of memory. */
static struct net_conn *conn_new(const struct net_entrance *entrance) {
    struct net_conn *conn = calloc(1, entrance->server->protocol->conn_bytes);
    if (conn && entrance->tls && !net_tls_attach(conn, entrance->tls)) {
        free(conn);
        return NULL;
    }
    return conn;
}

static void on_accept(void *cookie, int fd, int family) {
    const struct net_entrance *entrance = cookie;
    struct net_server *server = entrance->server;
    uint64_t n_over = net_budget_connect(server->budget);
    struct net_conn *conn = n_over <= REFUSALS_AT_ONCE ? conn_new(entrance) : NULL;
    if (!conn) {
        close(fd);
        net_budget_disconnect(server->budget);
        return;
    }
    conn->protocol = server->protocol;
    conn->entrance = entrance;
    conn->shard = shard_choose(server);
    conn->fd = fd;
    conn->is_unix = family == AF_UNIX;
    conn->refused = n_over > 0;
    conn->msg.run = run_open;
    atomic_fetch_add_explicit(&conn->shard->load, 1, memory_order_relaxed);
    if (conn->shard->worker == server->acceptor) {
        net_conn_open(conn);
    } else {
        worker_post(conn->shard->worker, &conn->msg);
    }
}

uint64_t net_server_in_flight(const struct net_server *server) {
    uint64_t n = 0;
    for (size_t i = 0; i < server->n_shards; i++) {
        n += atomic_load_explicit(&server->shards[i].in_flight, memory_order_relaxed);
    }
    return n;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void one_is_closed(struct net_server *server) {
    assert(server->n_open > 0);
    if (--server->n_open == 0 && server->stopping) {
        server->done(server->cookie);
    }
}

static void on_listener_closed(void *cookie) {
    one_is_closed(((const struct net_entrance *)cookie)->server);
}

void net_server_shard_done(struct net_server *server) {
    one_is_closed(server);
}

/* Room for one more. Returns: NULL when out of memory. */
static struct net_entrance *entrance_new(struct net_server *server, const struct tls_server *tls,
                                         const void *cookie) {
    size_t n = server->n_entrances;
    struct net_entrance **entrances =
        realloc(server->entrances, (n + 1) * sizeof(struct net_entrance *));
    if (!entrances) {
        return NULL;
    }
    server->entrances = entrances;
    struct net_entrance *entrance = calloc(1, sizeof(*entrance));
    if (entrance) {
        entrance->server = server;
        entrance->tls = tls;
        entrance->cookie = cookie;
    }
    return entrance;
}

enum status net_server_listen(struct net_server *server, const struct address *address,
                              const struct tls_server *tls, const void *cookie,
                              struct address *bound, struct error *err) {
    struct net_entrance *entrance = entrance_new(server, tls, cookie);
    if (!entrance) {
        return error_set(err, ST_NO_MEMORY, "no memory for a listener");
    }
    struct listener_events events = {
        .on_accept = on_accept, .on_closed = on_listener_closed, .cookie = entrance};
    enum status st = listener_open(worker_loop(server->acceptor), address, &events,
                                   &entrance->listener, bound, err);
    if (st != ST_OK) {
        free(entrance);
        return st;
    }
    address_print(bound, entrance->text);
    server->entrances[server->n_entrances++] = entrance;
    server->n_open++;
    return ST_OK;
}

void net_server_drain(struct net_server *server) {
    if (atomic_load(&server->draining) || server->stopping) {
        return;
    }
    atomic_store(&server->draining, true);
    for (size_t i = 0; i < server->n_shards; i++) {
        worker_post(server->shards[i].worker, &server->shards[i].drain_msg);
    }
}

void net_server_stop(struct net_server *server, void (*done)(void *cookie), void *cookie) {
    if (server->stopping) {
        return;
    }
    server->stopping = true;
    server->done = done;
    server->cookie = cookie;
    server->n_open += server->n_shards;
    for (size_t i = 0; i < server->n_entrances; i++) {
        listener_close(server->entrances[i]->listener);
    }
    for (size_t i = 0; i < server->n_shards; i++) {
        worker_post(server->shards[i].worker, &server->shards[i].stop_msg);
    }
}
