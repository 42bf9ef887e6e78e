/* Bytes that have come before anybody can use them, in their order. They count against the budget
 * of bodies. For the grpc_*.c files of this room only. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_PENDING_INPUT_H
#define SLUICE_NET_TRANSPORT_GRPC_PENDING_INPUT_H

#include <stddef.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "net/transport/budget.h"

/* Zeroed memory is an empty one. */
struct grpc_pending_input {
    char *data;
    size_t at, len; /* the bytes are those from `at` to `len` */
    size_t cap;
};

static inline struct str grpc_pending_input_bytes(const struct grpc_pending_input *pending) {
    return str_make(pending->data ? pending->data + pending->at : NULL, pending->len - pending->at);
}

/* Puts a copy behind what is there. Returns: ST_OVERLOADED, ST_NO_MEMORY; nothing was added. */
enum status grpc_pending_input_add_copy(struct grpc_pending_input *pending,
                                        struct net_budget *budget, struct str data,
                                        struct error *err) __attribute__((warn_unused_result));
/* Drops so many bytes from the front; an empty one holds nothing. */
void grpc_pending_input_consume(struct grpc_pending_input *pending, struct net_budget *budget,
                                size_t n_bytes);

#endif
