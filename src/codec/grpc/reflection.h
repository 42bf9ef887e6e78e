/* Server reflection (grpc.reflection.v1 and v1alpha, which have the same messages): responds to
 * requests for the descriptors of the server's services, a FileDescriptorSet. Sans I/O.
 *
 * proto/reflection.proto */
#ifndef SLUICE_CODEC_GRPC_REFLECTION_H
#define SLUICE_CODEC_GRPC_REFLECTION_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Appends the ServerReflectionResponse for a ServerReflectionRequest; an unknown name gives an
 * ErrorResponse in it. `descriptors` is our own and well formed. Returns: ST_BAD_REQUEST when
 * `request` is not such a message. */
enum status grpc_reflection_respond(struct str descriptors, struct str request, struct buf *out,
                                    struct error *err) SLUICE_MUST_USE;

#endif
