/* Header fields that the caller adds to requests: those of a client are sent with each call, those
 * of a call replace the client's of the same name. Over gRPC they are its metadata: names in lower
 * case, values of printable ASCII, or any bytes under a name in "-bin" (gRPC over HTTP2,
 * "Custom-Metadata"). */
#ifndef SLUICE_CLIENT_HEADERS_H
#define SLUICE_CLIENT_HEADERS_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "sluice/client.h"

struct client_header {
    struct str name, value;
};

struct client_headers {
    const struct client_header *items;
    size_t n;
};

/* What the options of a client or of a call have; each may be NULL. */
struct client_headers_source {
    const sluice_header *items;
    size_t n;
    const char *bearer_token;
    const char *traceparent;
    bool is_grpc;
};

/* Checks and copies header fields. Returns: ST_BAD_FIELD, without the value, which may be a secret:
 * for what HTTP does not allow, for fields that the library sets itself, for Authorization beside a
 * token, and for a traceparent that is none (W3C Trace Context, "traceparent Header"). Owns: in
 * `arena`. */
enum status client_headers_import(struct arena *arena, const struct client_headers_source *source,
                                  struct client_headers *out, struct error *err) SLUICE_MUST_USE;
/* All of `of_call`, and those of `of_client` whose name it lacks. Returns: ST_NO_MEMORY;
 * ST_BAD_FIELD for more than gRPC's CLIENT_MAX_METADATA together, if `is_grpc`. Owns: the
 * array is in `arena`, or one of the two; the texts stay where they are. */
enum { CLIENT_MAX_METADATA = 64 };
enum status client_headers_merge(struct arena *arena, struct client_headers of_client,
                                 struct client_headers of_call, bool is_grpc,
                                 struct client_headers *out, struct error *err) SLUICE_MUST_USE;

bool client_headers_have(struct client_headers headers, struct str name);
/* Appends "Name: value\r\n" for each. */
void client_headers_print(struct buf *out, struct client_headers headers);

#endif
