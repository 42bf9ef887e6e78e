/* The FileDescriptorSet of the server's services, compiled into the program from proto/
 * (cmake/proto.cmake). */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_DESCRIPTORS_H
#define SLUICE_SERVE_FRONTEND_GRPC_DESCRIPTORS_H

#include "core/base/str.h"

struct str serve_descriptors(void);

#endif
