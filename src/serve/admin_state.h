/* What every connection, request and instance is doing, as a text for people: at /debug/state, and
 * in the log. */
#ifndef SLUICE_SERVE_ADMIN_STATE_H
#define SLUICE_SERVE_ADMIN_STATE_H

#include "model/repository.h"
#include "net/http_server.h"
#include "net/report.h"

/* Filled by whoever has the servers, before any is asked. */
struct admin_state {
    struct repository *repository;
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
