/* HTTP headers and gRPC metadata that are forwarded to the model as request parameters: those whose
 * name matches a pattern. Immutable.
 *
 * Thread: any, except new and free. */
#ifndef SLUICE_SERVE_FRONTEND_HEADER_FORWARD_H
#define SLUICE_SERVE_FRONTEND_HEADER_FORWARD_H

#include "codec/http1/request.h"
#include "core/tensor/param.h"
#include "net/server/grpc/server.h"

struct header_forward;

enum { HEADER_FORWARD_NAME_BYTES = 255 }; /* a longer name never matches */

/* `pattern` is a POSIX extended regular expression, matched anywhere in the name, case-insensitive
 * unless it begins with "(?-i)". Returns: ST_BAD_CONFIG for an invalid expression; ST_NO_MEMORY.
 * Owns: *out until header_forward_free. */
enum status header_forward_new(const char *pattern, struct header_forward **out,
                               struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void header_forward_free(struct header_forward *self);
/* Checks a pattern. NULL is valid: nothing is forwarded. Returns: as header_forward_new. */
enum status header_forward_check(const char *pattern, struct error *err) SLUICE_MUST_USE;

/* Appends the matching fields to `params`, which are in `arena`, as string parameters. The first
 * value of a name wins: the request's own parameter, then the first field. `self` NULL: no field
 * matches. Returns: ST_BAD_FIELD for a field with a reserved name or a value that is not UTF-8;
 * ST_NO_MEMORY. Clause: parameters extension, header forwarding. */
enum status header_forward_http(const struct header_forward *self, struct arena *arena,
                                const struct http_head *head, struct params *params,
                                struct error *err) SLUICE_MUST_USE;
/* Returns: whether header_forward_grpc forwards fields of this name. */
bool header_forward_matches_grpc(const struct header_forward *self, struct str name);
/* As header_forward_http, of metadata. Fields of gRPC itself ("te", "content-type", "grpc-…") and
 * binary ones ("…-bin") never match. */
enum status header_forward_grpc(const struct header_forward *self, struct arena *arena,
                                const struct grpc_call *call, struct params *params,
                                struct error *err) SLUICE_MUST_USE;

#endif
