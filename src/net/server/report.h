/* What the connections of servers are doing, in words, for whoever looks into a running process.
 * Each worker writes down its own, between two events; then all is put together. The text is
 * bounded: so many connections of each worker are written down, the others counted. */
#ifndef SLUICE_NET_SERVER_REPORT_H
#define SLUICE_NET_SERVER_REPORT_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/event/worker.h"

struct net_server;

enum {
    NET_REPORT_SERVERS = 8,
    NET_REPORT_CONNECTIONS = 100, /* written down of each worker and server */
};

struct net_report_server {
    const char *name;          /* "http" */
    struct net_server *server; /* http_server_net and its like */
};

/* Asks all workers. `done` is called on `back`, exactly once, with the text appended to `out`,
 * whose arena is back's; `out` must stay until then, and the workers' loops must run.
 * Returns: ST_NO_MEMORY; `done` is not called then. Thread: back's. */
enum status net_report_start(const struct net_report_server *servers, size_t n,
                             struct worker *reply_worker, struct buf *out, void (*done)(void *user),
                             void *user, struct error *err) __attribute__((warn_unused_result));

#endif
