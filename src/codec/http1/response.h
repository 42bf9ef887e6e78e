/* Parses the responses of an HTTP/1.1 server, one after the other on a connection, sans I/O: bytes
 * in, events out. Strict: what two parsers could take for two different responses is an error (bare
 * LF, folded fields, two lengths, a length beside Transfer-Encoding). Content-Encoding and
 * redirects are left to the caller.
 *
 *     http1_response_begin → step … HTTP1_RESPONSE_HEAD → step … HTTP1_RESPONSE_BODY, … →
 *     HTTP1_RESPONSE_DONE → begin …
 *
 * Clauses: RFC 9112 sections 2 to 7 (the message), RFC 9110 section 15.2 (interim responses).
 * Thread: one at a time. */
#ifndef SLUICE_CODEC_HTTP1_RESPONSE_H
#define SLUICE_CODEC_HTTP1_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"

struct http1_response;

/* Limits of one response: the bytes of status line, names and values, and the number of fields. */
enum { HTTP1_RESPONSE_MAX_HEAD_BYTES = 32768, HTTP1_RESPONSE_MAX_FIELDS = 128 };

enum http1_response_event {
    HTTP1_RESPONSE_MORE, /* everything was consumed; more bytes are needed */
    HTTP1_RESPONSE_HEAD, /* the head of the final response is complete */
    HTTP1_RESPONSE_BODY, /* a piece of the body */
    HTTP1_RESPONSE_DONE, /* the response is complete */
};

/* Returns: NULL when out of memory. It is the only allocation. */
struct http1_response *http1_response_new(void);
void http1_response_free(struct http1_response *response);

/* Prepares for the next response. `head_request`: the request was a HEAD, so that the response has
 * no body whatever its fields are. */
void http1_response_begin(struct http1_response *response, bool head_request);

/* Parses `data` up to the next event, and removes the consumed bytes from it. Interim responses
 * (1xx) are skipped. `body` is the piece for HTTP1_RESPONSE_BODY, a view of `data`, not empty.
 * Returns: ST_BAD_ANSWER with the reason; the connection cannot be parsed further then. */
enum status http1_response_step(struct http1_response *response, struct str *data,
                                enum http1_response_event *event, struct str *body,
                                struct error *err) SLUICE_MUST_USE;
/* The server closed the connection. Returns: ST_OK where that ends the response (RFC 9112 section
 * 6.3, case 8), ST_BAD_ANSWER where the response is incomplete. */
enum status http1_response_eof(struct http1_response *response, struct error *err) SLUICE_MUST_USE;

/* From HTTP1_RESPONSE_HEAD on, until the next begin: */
int http1_response_status(const struct http1_response *response); /* 200 to 999 */
/* Returns: the number of fields of that name (in any case), with *value the first one's, without
 * spaces around it, valid until the next begin. Trailers are not fields. */
size_t http1_response_find(const struct http1_response *response, const char *name,
                           struct str *value);
/* The fields by index, in the order received; values as above. */
size_t http1_response_n_fields(const struct http1_response *response);
void http1_response_field(const struct http1_response *response, size_t index, struct str *name,
                          struct str *value);
/* The value of Content-Length. Returns: false when the response has none. */
bool http1_response_content_length(const struct http1_response *response, uint64_t *n_bytes);
/* At HTTP1_RESPONSE_DONE: may the connection be reused? */
bool http1_response_keeps_alive(const struct http1_response *response);

#endif
