/* The gateway's own listeners. That of --metrics, for operators: the picker's pages, which the
 * picker in Envoy serves at a Unix socket, and /metrics with what the gateway, the picker and Envoy
 * count. And a Unix socket, to which Envoy sends the requests of clients that are answered for all
 * endpoints together (pool_answers.h).
 *
 * Thread: the functions, main; the pages, the worker's. */
#ifndef SLUICE_PROGRAM_GATEWAY_PAGES_H
#define SLUICE_PROGRAM_GATEWAY_PAGES_H

#include "codec/http1/web_access.h"
#include "net/client/http_fetch.h"
#include "program/gateway/envoy_process.h"
#include "program/gateway/pool_answers.h"
#include "serve/frontend/keys.h"
#include "telemetry/admin/listener.h"
#include "telemetry/admin/router.h"

struct gateway_pages_options {
    const struct gateway_settings *settings;
    const char *where; /* --metrics */
    const char *picker_socket, *admin_socket;
    const char *answers_at;  /* "unix:/path" of the listener for Envoy */
    const struct keys *keys; /* of --keys; NULL: there are none */
    const struct envoy_process *envoy;
    struct worker *worker; /* which serves the pages and nothing else */
};

struct gateway_pages {
    struct gateway_pages_options options;
    struct http_fetcher *fetcher;
    struct web_access web;
    struct admin_routes routes, answers_routes;
    struct http_router answers_router; /* of answers_routes */
    struct admin_listener listener;    /* of --metrics */
    struct admin_listener answers_listener;
    struct pool_answers answers;
    unsigned n_stopping; /* listeners that have not stopped */
    bool stopping;       /* no further page is fetched. Thread: the worker's */
    struct worker_msg stop_msg, stopped_msg;
    struct worker *main;
    void (*stopped)(void *user);
    void *stopped_user;
};

/* Opens both listeners, that of --metrics unless it is `none`; zeroed memory. Returns: why it
 * can't, with the setting.
 * Owns: gateway_pages_free, also after a failure. */
enum status gateway_pages_open(struct gateway_pages *self,
                               const struct gateway_pages_options *options,
                               struct error *err) SLUICE_MUST_USE;
/* Ends all of it; `stopped` is called on `main`, now where nothing was opened. */
void gateway_pages_stop(struct gateway_pages *self, struct worker *main,
                        void (*stopped)(void *user), void *user);
/* After `stopped`. */
void gateway_pages_free(struct gateway_pages *self);

#endif
