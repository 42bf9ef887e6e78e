/* Server reflection of the endpoint picker: grpcurl and its like can ask what is served. */
#ifndef SLUICE_PICK_EXT_PROC_REFLECTION_H
#define SLUICE_PICK_EXT_PROC_REFLECTION_H

#include "net/server/grpc/server.h"

/* The rows for grpc_server_new. */
enum { PICK_REFLECTION_METHODS = 2 };
void pick_reflection_methods(struct grpc_method methods[PICK_REFLECTION_METHODS]);

#endif
