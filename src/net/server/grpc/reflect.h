/* Server reflection v1 and v1alpha for a gRPC server: answers requests from descriptors that are
 * built into the program (cmake/proto.cmake). */
#ifndef SLUICE_NET_SERVER_GRPC_REFLECT_H
#define SLUICE_NET_SERVER_GRPC_REFLECT_H

#include "core/base/str.h"
#include "net/server/grpc/server.h"

#define GRPC_REFLECT_V1 "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define GRPC_REFLECT_V1ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

/* Event callback of both methods, which are streaming. `descriptors`: a FileDescriptorSet of the
 * server's services. Back pressure: the next request is read after the response is queued; the
 * client's flow control bounds both. */
void grpc_reflect(struct str descriptors, struct grpc_call *call, enum grpc_event event);

#endif
