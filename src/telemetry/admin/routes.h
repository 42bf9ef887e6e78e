/* The pages of an operators' listener, a table: which path, and who answers. Each is asked with GET
 * or HEAD; a path that is not in the table is told which are.
 *
 * Thread: the exchange's. */
#ifndef SLUICE_TELEMETRY_ADMIN_ROUTES_H
#define SLUICE_TELEMETRY_ADMIN_ROUTES_H

#include "net/server/http/server.h"

struct admin_route {
    const char *path;
    void (*answer)(struct http_exchange *exchange, void *context);
};

struct admin_routes {
    const struct admin_route *items; /* two or more, as they are named to who asks for another */
    size_t n;
    void *context; /* for all of them */
};

/* The table of callbacks for http_server_new; `routes` must outlive the server. */
struct http_handler admin_routes_handler(struct admin_routes *routes);

#endif
