/* A report of what the connections of the servers are doing, for operators. Each worker describes
 * its own connections between two events. The report is bounded: NET_REPORT_CONNECTIONS of each
 * worker and server are described, the others counted. */
#ifndef SLUICE_NET_SERVER_REPORT_H
#define SLUICE_NET_SERVER_REPORT_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/event/worker.h"

struct net_server;

enum {
    NET_REPORT_SERVERS = 8,
    NET_REPORT_CONNECTIONS = 100, /* described per worker and server */
};

struct net_report_server {
    const char *name;          /* "http" */
    struct net_server *server; /* http_server_net and the like */
};

/* Collects the report from all workers. `done` is called on reply_worker exactly once, with the
 * text appended to `out`, whose arena belongs to that worker; `out` must stay valid until then, and
 * the workers' loops must run. Returns: ST_NO_MEMORY; `done` is not called then. Thread:
 * reply_worker's. */
enum status net_report_start(const struct net_report_server *servers, size_t n,
                             struct worker *reply_worker, struct buf *out, void (*done)(void *user),
                             void *user, struct error *err) SLUICE_MUST_USE;

#endif
