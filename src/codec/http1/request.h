/* Parses the requests of an HTTP/1.1 client, sans I/O: bytes in, events out. Strict: what two
 * parsers could take for two different requests is an error (bare LF, folded fields, two lengths, a
 * length beside Transfer-Encoding). A body with Content-Length is not parsed: the caller reads its
 * bytes itself.
 *
 *     http1_request_new → step … HTTP1_REQUEST_HEAD → when chunked: step … _BODY, … → _DONE
 *
 * Clauses: RFC 9112 sections 2 to 7 (the message), RFC 9110 sections 5, 7.2 (Host), 10.1.1
 * (Expect). Thread: one at a time. */
#ifndef SLUICE_CODEC_HTTP1_REQUEST_H
#define SLUICE_CODEC_HTTP1_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

struct http_field {
    struct str name;  /* as sent; compare with str_eq_nocase */
    struct str value; /* without surrounding spaces */
};

/* What the client expects before it sends the body. */
enum http_expect { HTTP_EXPECT_NOTHING, HTTP_EXPECT_CONTINUE, HTTP_EXPECT_UNKNOWN };

/* A request's head; views of the arena it was read into. */
struct http_head {
    struct str method; /* "GET"; also methods that the server does not support */
    struct str target; /* as sent */
    struct str path;   /* of the target, still percent-encoded, without the query; scheme and
                          authority of an absolute form removed; "*" as it is */
    struct str query;  /* without the "?"; ptr NULL when there is none */
    struct str host;   /* "name:8000": of an absolute form, else the Host field; ptr NULL: none */
    const struct http_field *fields;
    size_t n_fields;
    bool http10;
    bool has_body; /* Content-Length above 0, or chunked */
    bool chunked;
    bool keep_alive; /* the client may send another request on this connection */
    bool names_site; /* has Origin or Sec-Fetch-Site: web_access.h */
    enum http_expect expect;
    uint64_t content_length; /* 0 when chunked or absent */
};

/* Returns: the number of fields of that name (in any case), with *value the first one's. */
size_t http_head_find(const struct http_head *head, struct str name, struct str *value);

/* Limits of one request: the number of fields, and the total bytes of chunk extensions and trailers
 * (both are ignored). */
enum { HTTP1_REQUEST_MAX_FIELDS = 256, HTTP1_REQUEST_MAX_EXTRA_BYTES = 16384 };

enum http1_request_event {
    HTTP1_REQUEST_MORE, /* everything was consumed; more bytes are needed */
    HTTP1_REQUEST_HEAD, /* the head is complete */
    HTTP1_REQUEST_BODY, /* a piece of a chunked body */
    HTTP1_REQUEST_DONE, /* the chunked body is complete */
};

struct http1_request;

/* A parser of one request, in `arena`, which also holds the head. `max_header_size` limits request
 * line and fields together. Returns: NULL when out of memory. Owns: the arena. */
struct http1_request *http1_request_new(struct arena *arena, size_t max_header_size);

/* Parses `data` up to the next event and removes the consumed bytes from it; up to two empty lines
 * before the request line are skipped. `body` is the piece for HTTP1_REQUEST_BODY, a view of
 * `data`, not empty. After HTTP1_REQUEST_HEAD it is called only when the head is chunked. Returns:
 * ST_BAD_REQUEST, ST_BAD_VERSION, ST_UNSUPPORTED (a transfer coding), ST_METHOD_NOT_ALLOWED
 * (CONNECT), ST_HEADER_TOO_LARGE, ST_NO_MEMORY, with the reason; the connection cannot be parsed
 * further then. */
enum status http1_request_step(struct http1_request *request, struct str *data,
                               enum http1_request_event *event, struct str *body,
                               struct error *err) SLUICE_MUST_USE;

/* Valid from HTTP1_REQUEST_HEAD on. */
const struct http_head *http1_request_head(const struct http1_request *request);
/* In a chunked body: the remaining bytes of the current chunk. A chunk's size is known before its
 * bytes arrive, so that a body over a limit is rejected early. */
uint64_t http1_request_chunk_left(const struct http1_request *request);
/* Returns: whether anything but empty lines was received. */
bool http1_request_has_begun(const struct http1_request *request);

#endif
