/* KServe v2 over HTTP: the front end between the HTTP server and the models. It routes requests,
 * checks keys and methods, and answers them, at once or when a body or a model is ready.
 *
 * Thread: the handler on any worker. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_HTTP_API_H
#define SLUICE_SERVE_FRONTEND_HTTP_HTTP_API_H

#include <stdatomic.h>
#include <stdbool.h>

#include "net/server/http/server.h"
#include "serve/frontend/client_inference.h"
#include "serve/frontend/header_forward.h"
#include "serve/frontend/keys.h"
#include "serve/frontend/load_report.h"

struct http_api {
    struct inference_services services;
    uint64_t max_body_size;               /* enforced by the server */
    const char *server_name;              /* metadata: name */
    const char *server_version;           /* metadata: version */
    const struct keys *keys;              /* NULL: no keys are needed */
    const struct web_access *web;         /* which requests web pages may make */
    const struct header_forward *forward; /* headers forwarded to models; NULL: none */
    const char *status_url; /* of the status page; NULL: none. Set before connections are accepted
                             */
    atomic_bool draining;   /* /v2/health/ready answers 503 */
    struct load_totals load_totals;
};

/* The router for http_server_new; `api` must outlive the server. */
struct http_router http_api_router(struct http_api *api);
/* page.c: sets how the pages of HTTP are printed, besides metrics. */
void http_pages_list(struct shared_page_printing kinds[PAGE_KINDS], struct repository *repository);
/* /v2/health/ready answers 503 from now on; requests are still served. Thread: any. */
void http_api_drain(struct http_api *api);

#endif
