/* Reports of what the connections of the servers are doing and what they hold, for operators. Each
 * worker describes its own connections between two events. The text is bounded:
 * NET_REPORT_CONNECTIONS of each worker and server are described, the others counted. */
#ifndef SLUICE_NET_SERVER_REPORT_H
#define SLUICE_NET_SERVER_REPORT_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/event/worker.h"
#include "net/transport/address.h"

struct net_server;

enum {
    NET_REPORT_SERVERS = 8,
    NET_REPORT_CONNECTIONS = 100, /* described per worker and server */
    NET_REPORT_HOLDERS = 5,       /* connections that hold most */
};

static const uint64_t NET_MEMORY_REPORT_WAIT_NS = UINT64_C(50000000);

struct net_report_server {
    const char *name;          /* "http" */
    struct net_server *server; /* http_server_net and the like */
};

/* What clients hold of the memory that the first server's budget limits, and servers that share
 * it. */
struct net_memory_server {
    const char *name;
    uint64_t n_response_bytes;
    uint64_t n_call_bytes; /* of open calls */
    uint64_t n_conn_bytes; /* of connections: TLS, buffers */
    uint64_t n_body_bytes; /* of its connections; those of calls that have taken them are missing */
    uint64_t n_waiting;    /* requests that wait for memory */
};

/* A connection. */
struct net_memory_holder {
    const char *server; /* its name */
    char peer[ADDRESS_TEXT_BYTES];
    uint64_t n_response_bytes;
    uint64_t n_call_bytes; /* of open calls */
    uint64_t n_conn_bytes; /* of the connection itself: TLS, buffers */
    uint64_t n_body_bytes;
    uint64_t n_page_bytes; /* others may hold the same pages */
    bool unread;           /* something waits to be read, */
    uint64_t unread_ns;    /* and nothing was for so long: as far as known at the first report */
};

struct net_memory_report {
    uint64_t limit; /* --client-memory; 0: none */
    uint64_t n_response_bytes, n_call_bytes, n_conn_bytes, n_body_bytes;
    uint64_t n_request_bytes; /* decoded of requests */
    uint64_t n_page_bytes;    /* of pages, each counted once */
    uint64_t n_cache_bytes;   /* of the response cache */
    size_t n_busy_workers;    /* did not answer in time: their bodies and holders are missing */
    struct net_memory_server servers[NET_REPORT_SERVERS];
    size_t n_servers;
    struct net_memory_holder holders[NET_REPORT_HOLDERS]; /* first the one that holds most */
    size_t n_holders;
};

/* For net_protocol.describe: appends text from the peer, truncated and with unprintable bytes
 * replaced. */
void net_report_add_name(struct buf *out, struct str name);
/* As net_report_start, without text: fills `memory`, after NET_MEMORY_REPORT_WAIT_NS also without
 * what workers have not answered yet. */
enum status net_memory_report_start(const struct net_report_server *servers, size_t n,
                                    struct worker *reply_worker, struct net_memory_report *memory,
                                    void (*done)(void *user), void *user,
                                    struct error *err) SLUICE_MUST_USE;
/* Collects the report from all workers. `done` is called on reply_worker exactly once, with the
 * text appended to `out`, whose arena belongs to that worker; `out` must stay valid until then, and
 * the workers' loops must run. Returns: ST_NO_MEMORY; `done` is not called then. Thread:
 * reply_worker's. */
enum status net_report_start(const struct net_report_server *servers, size_t n,
                             struct worker *reply_worker, struct buf *out, void (*done)(void *user),
                             void *user, struct error *err) SLUICE_MUST_USE;

#endif
