/* Headers of HTTP and metadata of gRPC that become parameters of a request, so that the model sees
 * them: those whose name a pattern fits. Immutable.
 *
 * Thread: any, but for new and free. */
#ifndef SLUICE_SERVE_FRONTEND_HEADER_FORWARD_H
#define SLUICE_SERVE_FRONTEND_HEADER_FORWARD_H

#include "codec/http1/request.h"
#include "core/tensor/param.h"
#include "net/server/grpc/server.h"

struct header_forward;

enum { HEADER_FORWARD_NAME_BYTES = 255 }; /* a longer name never fits */

/* `pattern` is a POSIX extended regular expression that fits a name where it is found anywhere in
 * it, in upper and lower case alike unless it begins with "(?-i)". Returns: ST_BAD_CONFIG for what
 * is none; ST_NO_MEMORY. Owns: *out until header_forward_free. */
enum status header_forward_new(const char *pattern, struct header_forward **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. */
void header_forward_free(struct header_forward *self);
/* Is it a pattern? NULL is fine, too: nothing is forwarded. Returns: as above. */
enum status header_forward_check(const char *pattern, struct error *err)
    __attribute__((warn_unused_result));

/* Adds the fields that fit behind `params`, which are in `arena`, as text. Of equal names the first
 * counts: the request's own, then the first field. `self` NULL: none fits. Returns: ST_BAD_FIELD
 * for a field with a reserved name and for a value that is not UTF-8; ST_NO_MEMORY.
 * Clause: parameters extension, header forwarding. */
enum status header_forward_http(const struct header_forward *self, struct arena *arena,
                                const struct http_head *head, struct params *params,
                                struct error *err) __attribute__((warn_unused_result));
/* The same; what is gRPC's own ("te", "content-type", "grpc-…") and binary ("…-bin") never fits. */
enum status header_forward_grpc(const struct header_forward *self, struct arena *arena,
                                const struct grpc_call *call, struct params *params,
                                struct error *err) __attribute__((warn_unused_result));

#endif
