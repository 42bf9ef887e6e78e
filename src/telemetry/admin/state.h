/* The state report, for operators: what is served, and every connection and request, at
 * /debug/state and in the log. */
#ifndef SLUICE_TELEMETRY_ADMIN_STATE_H
#define SLUICE_TELEMETRY_ADMIN_STATE_H

#include "net/server/http/server.h"
#include "net/server/report.h"

/* Filled by the program before the first report. */
struct admin_state {
    void (*print)(void *context, struct buf *out); /* prints what is served */
    void *context;
    struct worker *worker; /* prints and collects the report */
    struct net_report_server servers[NET_REPORT_SERVERS];
    size_t n_servers;
};

/* Replies with the report once all workers have printed their part. Thread: the exchange's, which
 * is state->worker's. */
void admin_state_reply(struct admin_state *state, struct http_exchange *exchange);
/* Writes the report to the log, one line each. Thread: state->worker's. */
void admin_state_log(struct admin_state *state);

#endif
