/* Which requests of clients need which key. Envoy asks the gateway before each request, with its
 * method, path and headers (the filter ext_authz). */
#ifndef SLUICE_PROGRAM_GATEWAY_AUTHORIZE_H
#define SLUICE_PROGRAM_GATEWAY_AUTHORIZE_H

#include "net/server/http/server.h"
#include "serve/frontend/keys.h"

/* What Envoy puts before the path of the request that it asks for. */
#define AUTHORIZE_PREFIX "/authorize"

/* The group of a request: of KServe v2 as `sluice serve` has it; of others, health checks are
 * health, what is only read is metadata, and the rest inference. Escapes and repeated slashes of
 * the path, without the query, do not count; one with "." or ".." as a segment is in no group. */
enum keys_group authorize_group_of(struct str method, struct str given);

/* Replies 200 where the request of which the exchange tells may be sent on, else 401. `keys` NULL:
 * all may. Thread: the exchange's. */
void authorize_reply(const struct keys *keys, struct http_exchange *exchange);

#endif
