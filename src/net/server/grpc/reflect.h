/* Server reflection for whoever has a gRPC server: in both versions a stream of questions about
 * descriptors, which were built into the program (cmake/proto.cmake). */
#ifndef SLUICE_NET_SERVER_GRPC_REFLECT_H
#define SLUICE_NET_SERVER_GRPC_REFLECT_H

#include "core/base/str.h"
#include "net/server/grpc/server.h"

#define GRPC_REFLECT_V1 "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define GRPC_REFLECT_V1ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

/* A step of either, which stream. `descriptors`: a FileDescriptorSet of the server's services. */
void grpc_reflect(struct str descriptors, struct grpc_call *call, enum grpc_event event);

#endif
