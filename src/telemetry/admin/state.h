/* What everything that is served is doing, and every connection and request, as a text for people:
 * at /debug/state, and in the log. */
#ifndef SLUICE_TELEMETRY_ADMIN_STATE_H
#define SLUICE_TELEMETRY_ADMIN_STATE_H

#include "net/server/http/server.h"
#include "net/server/report.h"

/* Filled by whoever has the servers, before any is asked. */
struct admin_state {
    void (*print)(void *context, struct buf *out); /* what is served */
    void *context;
    struct worker *worker; /* where texts are put together */
    struct net_report_server servers[NET_REPORT_SERVERS];
    size_t n_servers;
};

/* Answers with the text, once all workers have written down theirs. Thread: the exchange's, which
 * is state->worker's. */
void admin_state_reply(struct admin_state *state, struct http_exchange *exchange);
/* The same into the log, a line each. Thread: state->worker's. */
void admin_state_log(struct admin_state *state);

#endif
