/* The HTTP server as a whole: net/server/server.h with HTTP's own limits, handler and common
 * fields. */
#include "net/server/http/server.h"

#include <stdlib.h>

#include "net/server/http/conn.h"

static struct net_limits limits_of(const struct http_limits *limits) {
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

enum status http_server_new(const struct http_server_options *options, struct http_server **out,
                            struct error *err) {
    struct net_server_options net = {
        .protocol = &http_protocol,
        .limits = limits_of(&options->limits),
        .budget = options->budget,
        .workers = options->workers,
        .n_workers = options->n_workers,
        .acceptor = options->acceptor,
    };
    struct http_server *server = calloc(1, sizeof(*server));
    struct http_common_fields *commons = calloc(options->n_workers, sizeof(*commons));
    if (!server || !commons) {
        free(server);
        free(commons);
        return error_set(err, ST_NO_MEMORY, "no memory for the HTTP server");
    }
    enum status st = net_server_init(&server->net, &net, err);
    if (st != ST_OK) {
        free(server);
        free(commons);
        return st;
    }
    server->limits = options->limits;
    server->handler = options->handler;
    server->server_name = options->server_name;
    server->common_fields = commons;
    *out = server;
    return ST_OK;
}

void http_server_free(struct http_server *server) {
    if (server) {
        net_server_fini(&server->net);
        free(server->common_fields);
        free(server);
    }
}

enum status http_server_listen(struct http_server *server, const struct address *address,
                               const struct tls_server *tls, struct address *bound,
                               struct error *err) {
    return net_server_listen(&server->net, address, tls, NULL, bound, err);
}

void http_server_drain(struct http_server *server) {
    net_server_drain(&server->net);
}

struct net_server *http_server_net(struct http_server *server) {
    return &server->net;
}

uint64_t http_server_in_flight(const struct http_server *server) {
    return net_server_in_flight(&server->net);
}

void http_server_stop(struct http_server *server, void (*done)(void *user), void *user) {
    net_server_stop(&server->net, done, user);
}
