/* The MIP server as a whole: net/server/server.h with MIP's own limits and handler. */
#include "net/server/mip/server.h"

#include <stdlib.h>

#include "net/server/mip/conn.h"

static struct net_limits limits_of(const struct mip_limits *limits) {
    return (struct net_limits){
        .request_memory = limits->request_memory,
        .idle_timeout_ns = limits->idle_timeout_ns,
        .header_timeout_ns = limits->header_timeout_ns,
        .body_timeout_ns = limits->body_timeout_ns,
        .min_body_rate = limits->min_body_rate,
        .write_timeout_ns = limits->write_timeout_ns,
        .discard_size = limits->discard_size,
    };
}

enum status mip_server_new(const struct mip_server_options *options, struct mip_server **out,
                           struct error *err) {
    struct net_server_options net = {
        .protocol = &mip_protocol,
        .limits = limits_of(&options->limits),
        .budget = options->budget,
        .workers = options->workers,
        .n_workers = options->n_workers,
        .acceptor = options->acceptor,
    };
    struct mip_server *server = calloc(1, sizeof(*server));
    struct log_limit *logs = calloc(options->n_workers, sizeof(*logs));
    if (!server || !logs) {
        free(server);
        free(logs);
        return error_set(err, ST_NO_MEMORY, "no memory for the MIP server");
    }
    enum status st = net_server_init(&server->net, &net, err);
    if (st != ST_OK) {
        free(server);
        free(logs);
        return st;
    }
    server->limits = options->limits;
    server->handler = options->handler;
    server->logs = logs;
    *out = server;
    return ST_OK;
}

void mip_server_free(struct mip_server *server) {
    if (server) {
        net_server_fini(&server->net);
        free(server->logs);
        free(server);
    }
}

enum status mip_server_listen(struct mip_server *server, const struct address *address,
                              const void *user, struct address *bound, struct error *err) {
    return net_server_listen(&server->net, address, NULL, user, bound, err);
}

void mip_server_drain(struct mip_server *server) {
    net_server_drain(&server->net);
}

struct net_server *mip_server_net(struct mip_server *server) {
    return &server->net;
}

uint64_t mip_server_in_flight(const struct mip_server *server) {
    return net_server_in_flight(&server->net);
}

void mip_server_stop(struct mip_server *server, void (*done)(void *user), void *user) {
    net_server_stop(&server->net, done, user);
}
