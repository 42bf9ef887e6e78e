/* The gRPC server as a whole: net/server/server.h with gRPC's own limits and methods. */
#include "net/server/grpc/server.h"

#include <stdlib.h>

#include "net/server/grpc/conn.h"

static struct net_limits limits_of(const struct grpc_limits *limits) {
    return (struct net_limits){
        .request_memory = limits->request_memory,
        .idle_timeout_ns = limits->idle_timeout_ns,
        .header_timeout_ns = limits->header_timeout_ns,
        .body_timeout_ns = limits->body_timeout_ns,
        .write_timeout_ns = limits->write_timeout_ns,
        .discard_size = GRPC_DISCARD_BYTES,
    };
}

static void schedule_deferred(struct grpc_core *core) {
    server_worker_schedule_deferred(core->user);
}

static enum status init_workers(struct grpc_server *server, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < server->net.n_workers && st == ST_OK; i++) {
        struct server_worker *server_worker = &server->net.workers[i];
        struct grpc_core *core = &server->workers[i].core;
        *core = (struct grpc_core){
            .pool = &server_worker->pool,
            .n_alive = &server_worker->n_calls,
            .n_calls = &server_worker->in_flight,
            .schedule_deferred = schedule_deferred,
            .on_refused = grpc_log_refused,
            .user = server_worker,
        };
        st = grpc_core_init(core, &server->options, server_worker->worker, err);
    }
    return st;
}

enum status grpc_server_new(const struct grpc_server_options *options, struct grpc_server **out,
                            struct error *err) {
    struct net_server_options net = {
        .protocol = &grpc_protocol,
        .limits = limits_of(&options->limits),
        .budget = options->budget,
        .workers = options->workers,
        .n_workers = options->n_workers,
        .acceptor = options->acceptor,
    };
    struct grpc_server *server = calloc(1, sizeof(*server));
    struct grpc_server_worker *workers = calloc(options->n_workers, sizeof(*workers));
    enum status st = ST_NO_MEMORY;
    if (server && workers) {
        st = net_server_init(&server->net, &net, err);
    } else {
        error_set(err, st, "no memory for the gRPC server");
    }
    if (!server || st != ST_OK) {
        free(server);
        free(workers);
        return st;
    }
    server->options = *options;
    server->workers = workers;
    st = init_workers(server, err);
    if (st != ST_OK) {
        grpc_server_free(server);
        return st;
    }
    *out = server;
    return ST_OK;
}

void grpc_server_free(struct grpc_server *server) {
    if (!server) {
        return;
    }
    for (size_t i = 0; i < server->net.n_workers; i++) {
        grpc_core_fini(&server->workers[i].core);
    }
    net_server_fini(&server->net);
    free(server->workers);
    free(server);
}

enum status grpc_server_listen(struct grpc_server *server, const struct address *address,
                               const struct tls_server *tls, struct address *bound,
                               struct error *err) {
    return net_server_listen(&server->net, address, tls, NULL, bound, err);
}

void grpc_server_drain(struct grpc_server *server) {
    net_server_drain(&server->net);
}

struct net_server *grpc_server_net(struct grpc_server *server) {
    return &server->net;
}

uint64_t grpc_server_in_flight(const struct grpc_server *server) {
    return net_server_in_flight(&server->net);
}

void grpc_server_stop(struct grpc_server *server, void (*done)(void *user), void *user) {
    net_server_stop(&server->net, done, user);
}
