/* What the gateway answers for all endpoints together: health of KServe v2, and the list of models
 * of OpenAI's API. Envoy sends these requests to a Unix socket of the gateway.
 *
 * Which endpoints there are, the picker in Envoy knows: its status is fetched when it is needed, at
 * most every STATUS_NS, for all requests that wait for it. The lists of models are fetched from the
 * endpoints, with the Authorization of the client, once for all clients with the same. Where the
 * pools' configuration has models, those that it refuses are left out, and names that it replaces
 * are added.
 *
 * Thread: the worker's. */
#ifndef SLUICE_PROGRAM_GATEWAY_POOL_ANSWERS_H
#define SLUICE_PROGRAM_GATEWAY_POOL_ANSWERS_H

#include <sys/queue.h>

#include "net/client/http_fetch.h"
#include "net/server/http/server.h"
#include "program/gateway/settings.h"

struct models_fetch;
struct status_waiter;

/* An endpoint of the picker's status. */
struct pool_answers_endpoint {
    const char *address; /* "10.0.0.1:8000" */
    bool is_checked;     /* its health check, if there is one, does not fail */
    bool is_ready;       /* requests are sent there, as far as is known now */
};

struct pool_answers {
    const struct gateway_settings *settings;
    struct http_fetcher *fetcher;
    const char *picker_socket;
    bool stopping; /* nothing more is fetched */
    /* The picker's status. */
    struct arena *arena; /* of `endpoints`; NULL: not known */
    struct pool_answers_endpoint *endpoints;
    size_t n_endpoints, n_ready;
    uint64_t known_ns; /* when it was fetched */
    bool fetching;
    STAILQ_HEAD(, status_waiter) waiters;
    /* Lists of models. */
    LIST_HEAD(, models_fetch) fetches;
    size_t n_fetches;
};

/* Zeroed memory. The fetcher is another's, and stops before the end; its callbacks are called by
 * then. Owns: pool_answers_free. */
void pool_answers_init(struct pool_answers *self, const struct gateway_settings *settings,
                       struct http_fetcher *fetcher, const char *picker_socket);
void pool_answers_free(struct pool_answers *self);

/* The gateway runs: 200. */
void pool_answers_live(struct pool_answers *self, struct http_exchange *exchange);
/* 200 where an endpoint is ready, else 503. */
void pool_answers_ready(struct pool_answers *self, struct http_exchange *exchange);
/* The models of all endpoints that answer, each name once; else the answer of one that refuses. */
void pool_answers_models(struct pool_answers *self, struct http_exchange *exchange);

#endif
