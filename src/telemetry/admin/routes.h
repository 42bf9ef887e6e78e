/* The pages of the admin listener: a table of paths and callbacks. Only GET and HEAD are allowed,
 * and for pages in a browser only those of allowed origins; a 404 lists the paths.
 *
 * Thread: the exchange's. */
#ifndef SLUICE_TELEMETRY_ADMIN_ROUTES_H
#define SLUICE_TELEMETRY_ADMIN_ROUTES_H

#include "codec/http1/web_access.h"
#include "net/server/http/server.h"

struct admin_route {
    const char *path;
    void (*answer)(struct http_exchange *exchange, void *context);
};

struct admin_routes {
    const struct admin_route *items; /* at least two: the 404 text lists them */
    size_t n;
    void *context; /* passed to all of them */
    const struct web_access *web;
};

/* Returns: the handler for http_server_new; `routes` must outlive the server. */
struct http_handler admin_routes_handler(struct admin_routes *routes);

#endif
