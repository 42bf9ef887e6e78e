/* Applies --allowed-host and --allowed-origin (codec/http1/web_access.h) to an exchange. */
#ifndef SLUICE_TELEMETRY_ADMIN_WEB_GATE_H
#define SLUICE_TELEMETRY_ADMIN_WEB_GATE_H

#include "codec/http1/web_access.h"
#include "net/server/http/server.h"
#include "telemetry/admin/http_text.h"

/* web_gate_admits, for a request that it cannot decide at once. */
bool web_gate_check(const struct web_access *access, struct http_exchange *exchange,
                    enum web_resource resource, enum http_method_set methods);

/* Returns: whether the handler answers the request; its response is one that an allowed origin may
 * read. Otherwise it has been answered: with the reason, or, as a preflight, with what a page of an
 * allowed origin may send (`methods`). Thread: the exchange's. */
static inline bool web_gate_admits(const struct web_access *access, struct http_exchange *exchange,
                                   enum web_resource resource, enum http_method_set methods) {
    return web_access_is_plain(access, exchange->listener, resource, &exchange->head) ||
           web_gate_check(access, exchange, resource, methods);
}

#endif
