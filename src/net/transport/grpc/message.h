/* What server and client of gRPC have in common for those who use them: a message as it came, and
 * the fields of a head. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_MESSAGE_H
#define SLUICE_NET_TRANSPORT_GRPC_MESSAGE_H

#include "core/base/arena.h"
#include "core/base/str.h"

/* A message, decompressed. Owns: whoever got it, until grpc_message_free. */
struct grpc_message {
    struct str data; /* in one piece; its first byte is aligned so that views of large fields can
                            be (align_at of who receives it) */
    struct arena *arena; /* for what is made of it; goes with it. A unary call's own */
};

/* NULL is allowed. */
void grpc_message_free(struct grpc_message *message);

struct grpc_field {
    struct str name;  /* lower case */
    struct str value; /* of a name that ends in "-bin": decoded */
};

#endif
