/* Writes the heads of answers over HTTP/1.1, sans I/O. It refuses to choose anything: what is said
 * is the caller's decision. For the server; response.h reads them. */
#ifndef SLUICE_CODEC_HTTP1_RESPONSE_HEAD_H
#define SLUICE_CODEC_HTTP1_RESPONSE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "codec/http1/request.h"
#include "core/base/buf.h"
#include "core/base/str.h"

struct http1_response_head {
    int status;
    struct str common;        /* whole lines that every answer has (http1_common_fields_print) */
    const char *content_type; /* NULL: none */
    uint64_t content_length;
    bool chunked;                    /* instead: the body comes in chunks */
    bool until_close;                /* instead: the body ends with the connection (HTTP/1.0) */
    const struct http_field *fields; /* further ones */
    size_t n_fields;
    bool close;      /* say that the connection ends */
    bool keep_alive; /* say that it does not (to a client of HTTP/1.0) */
};

/* Appends status line, fields and the empty line. `out->failed` says whether it fit in memory. */
void http1_response_head_print(struct buf *out, const struct http1_response_head *reply);

/* "Bad Request". Returns: "Unknown" for what has no name. */
const char *http1_reason(int status);

enum { HTTP1_COMMON_FIELDS_BYTES = 160 };

/* Prints the lines Server and Date (RFC 9110, 5.6.7 and 10.2.4) of the second `now`. A name that is
 * too long is cut. Returns: a view of `out`. */
struct str http1_common_fields_print(char out[HTTP1_COMMON_FIELDS_BYTES], const char *server,
                                     time_t now);

#endif
