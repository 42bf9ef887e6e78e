/* The operators' listener of --metrics, whatever is shown there. It listens on the main thread,
 * whose loop the workers' requests don't wait for. */
#ifndef SLUICE_TELEMETRY_ADMIN_LISTENER_H
#define SLUICE_TELEMETRY_ADMIN_LISTENER_H

#include "core/base/arena.h"
#include "net/server/http/server.h"

struct admin_listener {
    /* Its own: who looks why a server takes no more connections must be able to ask it. */
    struct net_budget budget;
    struct http_server *server; /* NULL: --metrics none */
    struct address address;     /* where it is listened on */
};

/* Is there to be one? `where` is what --metrics says. */
bool admin_listener_is_enabled(const char *where);
/* Fills in zeroed memory, and does nothing where none is wanted. Returns: why it can't listen, with
 * the setting. Owns: admin_listener_free, also after a failure. */
enum status admin_listener_open(struct admin_listener *listener, const char *where,
                                const struct http_limits *limits, struct http_handler handler,
                                struct worker *main, struct error *err)
    __attribute__((warn_unused_result));
/* As in the ready file. Returns: NULL when out of memory. */
const char *admin_listener_url(const struct admin_listener *listener, struct arena *arena);
/* After the server, if there is one, has stopped. */
void admin_listener_free(struct admin_listener *listener);

#endif
