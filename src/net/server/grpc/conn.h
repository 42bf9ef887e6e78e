/* A gRPC connection: net/server/server.h's connection with an HTTP/2 session (session.h). Internal
 * to net/server/grpc and the connection report. */
#ifndef SLUICE_NET_SERVER_GRPC_CONN_H
#define SLUICE_NET_SERVER_GRPC_CONN_H

#include "core/base/compiler.h"
#include "core/os/log_limit.h"
#include "net/server/grpc/session.h"
#include "net/server/server.h"

struct grpc_conn {
    struct net_conn net;
    struct grpc_session session;
    struct grpc_output *output; /* sent by `write` */
    struct net_write write;
    bool session_opened; /* the session is open; opened with the first bytes */
};

/* A worker's part of the server. */
struct grpc_server_worker {
    struct grpc_core core;
    struct log_limit log;
};

struct grpc_server {
    struct net_server net;
    struct grpc_server_options options;
    struct grpc_server_worker *workers; /* as many as net.workers */
};

static inline struct grpc_server_worker *grpc_server_worker_of(
    const struct server_worker *server_worker) {
    return &((struct grpc_server *)server_worker->server)
                ->workers[server_worker_index(server_worker)];
}

static inline struct grpc_conn *grpc_conn_of(struct grpc_session *session) {
    return CONTAINER_OF(session, struct grpc_conn, session);
}

enum { GRPC_DISCARD_BYTES = 1 << 20 }; /* limit of input dropped while a connection lingers */

/* In net/server/report.c. */
void grpc_describe(const struct net_conn *conn, struct buf *out);

#endif
