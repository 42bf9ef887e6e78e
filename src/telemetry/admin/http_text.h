/* Responding to an exchange with a generated text. */
#ifndef SLUICE_TELEMETRY_ADMIN_HTTP_TEXT_H
#define SLUICE_TELEMETRY_ADMIN_HTTP_TEXT_H

#include "core/base/buf.h"
#include "net/server/http/server.h"

/* Replies with `body`, which is in the exchange's arena, or with an error when it has failed (out
 * of memory). */
void http_text_reply(struct http_exchange *exchange, int status, const char *type,
                     const struct buf *body);
static inline void http_json_reply(struct http_exchange *exchange, int status,
                                   const struct buf *body) {
    http_text_reply(exchange, status, "application/json", body);
}
/* Allowed methods of a resource. */
enum http_method_set { HTTP_READ, HTTP_POST, HTTP_READ_OR_POST, HTTP_READ_OR_DELETE };
/* Returns: "GET, HEAD" */
const char *http_methods_text(enum http_method_set methods);
/* Returns: whether the method is allowed (HTTP_READ is GET and HEAD). Replies 405 with Allow when
 * it is not. */
bool http_check_method(struct http_exchange *exchange, enum http_method_set methods);

#endif
