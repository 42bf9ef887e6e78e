/* The server as a whole: which connection goes to which worker, and how all of it ends. It refuses
 * to touch a connection: those belong to their workers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/http_conn.h"
#include "net/listener.h"

/* So many connections over the limit are told why; the rest is closed at once. */
enum { REFUSALS_AT_ONCE = 256 };

enum status http_server_new(const struct http_server_options *options, struct http_server **out,
                            struct error *err) {
    struct http_server *server = calloc(1, sizeof(*server));
    struct http_shard *shards = calloc(options->n_workers, sizeof(*shards));
    assert(options->n_workers > 0);
    if (!server || !shards) {
        free(server);
        free(shards);
        return error_set(err, ST_NO_MEMORY, "no memory for the HTTP server");
    }
    *server = (struct http_server){
        .limits = options->limits,
        .handler = options->handler,
        .server_name = options->server_name,
        .acceptor = options->acceptor,
        .budget = options->budget,
        .shards = shards,
        .n_shards = options->n_workers,
    };
    for (size_t i = 0; i < server->n_shards; i++) {
        http_shard_init(&shards[i], server, options->workers[i]);
    }
    *out = server;
    return ST_OK;
}

void http_server_free(struct http_server *server) {
    if (!server) {
        return;
    }
    assert(server->n_listeners == 0 || (server->stopping && server->n_open == 0));
    for (size_t i = 0; i < server->n_shards; i++) {
        http_shard_fini(&server->shards[i]);
    }
    free(server->shards);
    free(server->listeners);
    free(server);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* The one with the fewest connections; in turn among equals. */
static struct http_shard *shard_choose(struct http_server *server) {
    struct http_shard *best = NULL;
    uint64_t best_load = UINT64_MAX;
    assert(server->n_shards > 0);
    for (size_t i = 0; i < server->n_shards; i++) {
        struct http_shard *shard = &server->shards[(server->next_shard + i) % server->n_shards];
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
    http_conn_open((struct http_conn *)(void *)((char *)msg - offsetof(struct http_conn, msg)));
}

static void on_accept(void *cookie, int fd, int family) {
    struct http_server *server = cookie;
    uint64_t n_over = net_budget_connect(server->budget);
    struct http_conn *conn = n_over <= REFUSALS_AT_ONCE ? calloc(1, sizeof(*conn)) : NULL;
    if (!conn) {
        close(fd);
        net_budget_disconnect(server->budget);
        return;
    }
    conn->shard = shard_choose(server);
    conn->fd = fd;
    conn->is_unix = family == AF_UNIX;
    conn->refused = n_over > 0;
    conn->msg.run = run_open;
    atomic_fetch_add_explicit(&conn->shard->load, 1, memory_order_relaxed);
    if (conn->shard->worker == server->acceptor) {
        http_conn_open(conn);
    } else {
        worker_post(conn->shard->worker, &conn->msg);
    }
}

uint64_t http_server_in_flight(const struct http_server *server) {
    uint64_t n = 0;
    for (size_t i = 0; i < server->n_shards; i++) {
        n += atomic_load_explicit(&server->shards[i].in_flight, memory_order_relaxed);
    }
    return n;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void one_is_closed(struct http_server *server) {
    assert(server->n_open > 0);
    if (--server->n_open == 0 && server->stopping) {
        server->done(server->cookie);
    }
}

static void on_listener_closed(void *cookie) {
    one_is_closed(cookie);
}

void http_server_shard_done(struct http_server *server) {
    one_is_closed(server);
}

enum status http_server_listen(struct http_server *server, const struct address *address,
                               struct address *bound, struct error *err) {
    size_t n = server->n_listeners;
    struct listener **listeners = realloc(server->listeners, (n + 1) * sizeof(*server->listeners));
    if (!listeners) {
        return error_set(err, ST_NO_MEMORY, "no memory for a listener");
    }
    server->listeners = listeners;
    struct listener_events events = {
        .on_accept = on_accept, .on_closed = on_listener_closed, .cookie = server};
    enum status st =
        listener_open(worker_loop(server->acceptor), address, &events, &listeners[n], bound, err);
    if (st == ST_OK) {
        server->n_listeners++;
        server->n_open++;
    }
    return st;
}

void http_server_drain(struct http_server *server) {
    if (atomic_load(&server->draining) || server->stopping) {
        return;
    }
    atomic_store(&server->draining, true);
    for (size_t i = 0; i < server->n_shards; i++) {
        worker_post(server->shards[i].worker, &server->shards[i].drain_msg);
    }
}

void http_server_stop(struct http_server *server, void (*done)(void *cookie), void *cookie) {
    if (server->stopping) {
        return;
    }
    server->stopping = true;
    server->done = done;
    server->cookie = cookie;
    server->n_open += server->n_shards;
    for (size_t i = 0; i < server->n_listeners; i++) {
        listener_close(server->listeners[i]);
    }
    for (size_t i = 0; i < server->n_shards; i++) {
        worker_post(server->shards[i].worker, &server->shards[i].stop_msg);
    }
}
