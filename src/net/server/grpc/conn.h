/* The gRPC server's part of a connection, between net/server/server.h and session.h. For the
 * grpc_*.c files of this room only. */
#ifndef SLUICE_NET_SERVER_GRPC_CONN_H
#define SLUICE_NET_SERVER_GRPC_CONN_H

#include "core/os/log_limit.h"
#include "net/server/grpc/session.h"
#include "net/server/server.h"

struct grpc_conn {
    struct net_conn net;
    struct grpc_session session;
    struct grpc_output *output; /* what `write` has */
    struct net_write write;
    bool session_opened; /* the session was; it is with the first bytes */
};

/* What a worker has of the server. */
struct grpc_server_worker {
    struct grpc_core core;
    struct log_limit log;
};

struct grpc_server {
    struct net_server net;
    struct grpc_server_options options;
    struct grpc_server_worker *workers; /* as many as the base's */
};

static inline struct grpc_server_worker *grpc_server_worker_of(
    const struct server_worker *server_worker) {
    return &((struct grpc_server *)server_worker->server)
                ->workers[server_worker_index(server_worker)];
}

static inline struct grpc_conn *grpc_conn_of(struct grpc_session *session) {
    return (struct grpc_conn *)(void *)((char *)session - offsetof(struct grpc_conn, session));
}

enum { GRPC_DISCARD_BYTES = 1 << 20 }; /* while a connection lingers */

/* In net/server/conn_describe.c. */
void grpc_describe(const struct net_conn *conn, struct buf *out);

#endif
