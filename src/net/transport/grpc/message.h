/* Types of the gRPC server's and client's public interfaces: a received message and a metadata
 * field. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_MESSAGE_H
#define SLUICE_NET_TRANSPORT_GRPC_MESSAGE_H

#include "core/base/arena.h"
#include "core/base/str.h"

/* A received message, decompressed. Owns: the receiver of the event, until grpc_message_free. */
struct grpc_message {
    /* Contiguous; aligned so that the offset chosen by align_at is 64-byte aligned. */
    struct str data;
    /* For the use of the message's owner; freed with it. The call's own for a unary call. */
    struct arena *arena;
};

/* NULL is allowed. */
void grpc_message_free(struct grpc_message *message);

struct grpc_field {
    struct str name;  /* lower case */
    struct str value; /* of a name that ends in "-bin": decoded */
};

#endif
