/* What stands behind an exchange whose answer comes later: it waits for its body, or for somebody
 * else. The first member of what a route keeps in exchange->user; routes that answer at once keep
 * nothing. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_REQUEST_OPS_H
#define SLUICE_SERVE_FRONTEND_HTTP_REQUEST_OPS_H

#include "serve/frontend/http/api.h"

struct http_request_ops {
    void (*body)(struct http_api *api, struct http_exchange *exchange); /* it is complete */
    void (*gone)(struct http_exchange *exchange);                       /* may be NULL */
    void (*end)(struct http_exchange *exchange);                        /* may be NULL */
};

#endif
