/* Prints the head of an HTTP/1.1 response, sans I/O, for the server. (response.h parses them.) */
#ifndef SLUICE_CODEC_HTTP1_RESPONSE_HEAD_H
#define SLUICE_CODEC_HTTP1_RESPONSE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "codec/http1/request.h"
#include "core/base/buf.h"
#include "core/base/str.h"

/* The fields of a response that a page of another origin may read: Fetch standard, 3.3.3. */
enum { HTTP_CORS_FIELDS = 3 };
void http_cors_fields(struct str allow_origin, struct http_field out[HTTP_CORS_FIELDS]);

struct http1_response_head {
    int status;
    struct str common;        /* complete lines that every response has
                                 (http1_common_fields_print) */
    const char *content_type; /* NULL: none */
    uint64_t content_length;
    bool chunked;                    /* instead: the body is chunked */
    bool until_close;                /* instead: the body ends when the connection is closed
                                        (HTTP/1.0) */
    const struct http_field *fields; /* additional fields */
    size_t n_fields;
    struct str allow_origin; /* a page of this origin may read the response; "": none */
    bool close;              /* "Connection: close" */
    bool keep_alive;         /* "Connection: keep-alive" (for an HTTP/1.0 client) */
};

/* Appends status line, fields and the empty line. `out->failed` is set when out of memory. */
void http1_response_head_print(struct buf *out, const struct http1_response_head *reply);

/* "Bad Request". Returns: "Unknown" for a status without a name. */
const char *http1_reason(int status);

enum { HTTP1_COMMON_FIELDS_BYTES = 160 };

/* Prints the lines Server and Date (RFC 9110, 5.6.7 and 10.2.4) for the second `now`. A name that
 * is too long is cut. Returns: a view of `out`. */
struct str http1_common_fields_print(char out[HTTP1_COMMON_FIELDS_BYTES], const char *server,
                                     time_t now);

#endif
