/* Reads the answers of an HTTP/1.1 server, one after the other on a connection, sans I/O: bytes in,
 * events out. Strict: what two readers could take for two different answers is refused (bare LF,
 * folded fields, two lengths, a length beside Transfer-Encoding). It refuses to know what an answer
 * means, to undo a Content-Encoding, and to follow anything.
 *
 *     http1_response_begin → step … HTTP1_RESPONSE_HEAD → step … HTTP1_RESPONSE_BODY, … →
 *     HTTP1_RESPONSE_DONE → begin …
 *
 * Clauses: RFC 9112 sections 2 to 7 (the message), RFC 9110 section 15.2 (interim answers).
 * Thread: one at a time. */
#ifndef SLUICE_CODEC_HTTP1_RESPONSE_H
#define SLUICE_CODEC_HTTP1_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"

struct http1_response;

/* The status line, names and values of one answer may take this much, in as many fields. */
enum { HTTP1_RESPONSE_MAX_HEAD_BYTES = 32768, HTTP1_RESPONSE_MAX_FIELDS = 128 };

enum http1_response_event {
    HTTP1_RESPONSE_MORE, /* everything was consumed; more bytes are needed */
    HTTP1_RESPONSE_HEAD, /* the head of the final answer is complete */
    HTTP1_RESPONSE_BODY, /* a piece of the body */
    HTTP1_RESPONSE_DONE, /* the answer is complete */
};

/* Returns: NULL when out of memory. It is the only allocation. */
struct http1_response *http1_response_new(void);
void http1_response_free(struct http1_response *response);

/* Expects the next answer. `head_request`: it answers a HEAD and has no body whatever its fields
 * say. */
void http1_response_begin(struct http1_response *response, bool head_request);

/* Reads on in `data` up to the next event, and cuts off there what was consumed. Interim answers
 * (1xx) are passed over. `body` is the piece for HTTP1_RESPONSE_BODY, a view of `data`, not empty.
 * Returns: ST_BAD_ANSWER saying what is wrong; nothing can be read on this connection any more. */
enum status http1_response_step(struct http1_response *response, struct str *data,
                                enum http1_response_event *event, struct str *body,
                                struct error *err) __attribute__((warn_unused_result));
/* The connection ended. Returns: ST_OK where that is how the answer ends (RFC 9112 section 6.3,
 * case 8), ST_BAD_ANSWER where something is missing. */
enum status http1_response_eof(struct http1_response *response, struct error *err)
    __attribute__((warn_unused_result));

/* From HTTP1_RESPONSE_HEAD on, until the next begin: */
int http1_response_status(const struct http1_response *response); /* 200 to 999 */
/* Returns: the number of fields of that name (in any case), with *value the first one's, without
 * spaces around it; a view that lives until the next begin. Trailers are not fields. */
size_t http1_response_find(const struct http1_response *response, const char *name,
                           struct str *value);
/* The value of Content-Length. Returns: false when the answer has none. */
bool http1_response_content_length(const struct http1_response *response, uint64_t *n_bytes);
/* At HTTP1_RESPONSE_DONE: may the connection be used again? */
bool http1_response_keeps_alive(const struct http1_response *response);
/* Was any byte of the answer read since begin? (A request may be sent again only when not.) */
bool http1_response_has_begun(const struct http1_response *response);

#endif
