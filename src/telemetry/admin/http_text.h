/* Answering an exchange with a text that was made for it. */
#ifndef SLUICE_TELEMETRY_ADMIN_HTTP_TEXT_H
#define SLUICE_TELEMETRY_ADMIN_HTTP_TEXT_H

#include "core/base/buf.h"
#include "net/server/http/server.h"

/* Replies with `body`, which lies in the exchange's arena, or with an error when there was no
 * memory for it. */
void http_text_reply(struct http_exchange *exchange, int status, const char *type,
                     const struct buf *body);
static inline void http_json_reply(struct http_exchange *exchange, int status,
                                   const struct buf *body) {
    http_text_reply(exchange, status, "application/json", body);
}
/* How a resource is called. */
enum http_method_set { HTTP_READ, HTTP_POST, HTTP_READ_OR_POST };
/* Is the method one of these? Reading is GET or HEAD. Answers 405 with Allow when it is not. */
bool http_check_method(struct http_exchange *exchange, enum http_method_set methods);

#endif
