/* The inside of the MIP server: what it adds to net/server/server.h and
 * net/server/request_response.h. For the mip_*.c files of this room only. */
#ifndef SLUICE_NET_SERVER_MIP_CONN_H
#define SLUICE_NET_SERVER_MIP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/os/log_limit.h"
#include "net/server/mip/server.h"
#include "net/server/request_response.h"

struct mip_conn {
    struct request_response_conn serial;
    uint8_t n_head; /* bytes of the header that are here */
    char head[MIP_HEADER_BYTES];
};

/* An inference, from its header on. */
struct mip_call {
    struct net_call base;
    struct mip_exchange exchange; /* the handler's part */
};

struct mip_server {
    struct net_server net;
    struct mip_limits limits;
    struct mip_handler handler;
    struct log_limit *logs; /* as many as shards */
};

static inline struct mip_server *mip_server_of(const struct server_worker *server_worker) {
    return (struct mip_server *)server_worker->server;
}

/* ---- conn.c: from bytes to packets ------------------------------------------------------- */

extern const struct net_protocol mip_protocol;

/* ---- reply.c: answers out (and mip_reply) ------------------------------------------------ */

/* Answers the ping at hand (state HEAD). */
void mip_reply_ping(struct request_response_conn *conn);
/* Answers a packet that no handler has (state HEAD or BODY) with an error. `left` bytes of its
 * payload are still to come: skipped, where they are few and known, else the connection ends. */
void mip_refuse(struct request_response_conn *conn, uint64_t left, const struct error *err);

/* ---- log.c ------------------------------------------------------------------------------- */

/* An error that is answered: counts it by its code and logs it with its reason, which the packet
 * does not carry. */
void mip_log_error(const struct net_conn *conn, const struct error *err);
/* The connection ended within a packet. */
void mip_log_truncated(const struct net_conn *conn, const char *why);

#endif
