/* The state report, for operators: what is served, and every connection and request, at
 * /debug/state and in the log; and /status.json, the numbers of the status page. */
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
/* Replies with the JSON object that `print` writes, once all workers have told what their
 * connections hold. Thread: as admin_state_reply. */
void admin_status_reply(struct admin_state *state, struct http_exchange *exchange,
                        void (*print)(void *context, const struct net_memory_report *memory,
                                      struct buf *out),
                        void *context);
/* Writes the report to the log, one line each. Thread: `worker`'s, which may be another than
 * state->worker. */
void admin_state_log(struct admin_state *state, struct worker *worker);

#endif
