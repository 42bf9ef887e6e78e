/* The pages of the admin listener: a table of paths and callbacks. Only GET and HEAD are allowed,
 * and for pages in a browser only those of allowed origins; a 404 lists the paths.
 *
 * Health checks are always answered. Of other pages at most ADMIN_MAX_PAGES are printed or sent at
 * a time, whatever the number of clients, so that health checks find a connection; of those that
 * all workers print a part of, ADMIN_MAX_REPORTS. Further requests get 503.
 *
 * Thread: the exchange's. */
#ifndef SLUICE_TELEMETRY_ADMIN_ROUTER_H
#define SLUICE_TELEMETRY_ADMIN_ROUTER_H

#include "codec/http1/web_access.h"
#include "net/server/http/server.h"

enum { ADMIN_MAX_PAGES = 128, ADMIN_MAX_REPORTS = 32 };

struct admin_route {
    const char *path;
    void (*answer)(struct http_exchange *exchange, void *context);
    bool is_report; /* the workers print a part of it */
};

struct admin_routes {
    const struct admin_route *items; /* at least two: the 404 text lists them */
    size_t n;
    void *context; /* passed to all of them */
    const struct web_access *web;
    /* Finds out whether the client may read the page, and then calls admin_routes_decide. NULL: all
     * clients may. Health checks are always answered. */
    void (*authorize)(struct http_exchange *exchange, void *context);
    /* Printed or sent now; those that are a report, and others. Thread: the exchanges'. */
    size_t n_reports, n_pages;
};

/* Returns: the router for http_server_new; `routes` must outlive the server. */
struct http_router admin_routes_router(struct admin_routes *routes);
/* Answers a request that was authorized, or, with an error, was not. */
void admin_routes_decide(struct admin_routes *routes, struct http_exchange *exchange,
                         const struct error *err);

#endif
