/* Messages put together from the bytes of DATA frames, wherever these are cut: a server's of its
 * clients, a client's of its server. What comes behind a message that waits is kept. Sans I/O, and
 * without an idea of windows: what was taken off `data` or used up is for the caller to tell the
 * peer. For the grpc_*.c files of this room only.
 *
 * gRPC over HTTP2, "Length-Prefixed-Message". */
#ifndef SLUICE_NET_TRANSPORT_GRPC_RECEIVER_H
#define SLUICE_NET_TRANSPORT_GRPC_RECEIVER_H

#include "codec/protobuf/grpc_text.h"
#include "net/transport/body.h"
#include "net/transport/budget.h"
#include "net/transport/grpc/message.h"

/* Zeroed memory is an empty one. */
struct grpc_pending_input {
    char *data;
    size_t at, len; /* the bytes are those from `at` to `len` */
    size_t cap;
};

static inline struct str grpc_pending_input_bytes(const struct grpc_pending_input *pending) {
    return str_make(pending->data ? pending->data + pending->at : NULL, pending->len - pending->at);
}

/* What all receivers of a worker share. */
struct grpc_receiver_options {
    struct arena_cache *arenas;
    struct body_pool *pool;
    struct net_budget *budget;
    uint64_t max_message_bytes;    /* decompressed */
    uint64_t message_memory_bytes; /* of a message's own arena; 0: no limit */
    const char *setting;           /* that changes max_message_bytes: "--max-body-size" */
};

/* How far the receiving of messages is. */
enum grpc_receiving {
    GRPC_RECEIVING_PREFIX,
    GRPC_RECEIVING_FIRST_BYTES, /* as much as tells where it goes */
    GRPC_RECEIVING_BODY,
    GRPC_RECEIVED,          /* a whole message waits to be taken */
    GRPC_RECEIVING_STOPPED, /* no more, or not wanted */
};

/* Zeroed memory in which the first members are set. */
struct grpc_receiver {
    const struct grpc_receiver_options *receiver_options;
    struct arena *arena; /* of its messages; NULL: each has its own */
    /* Of a message's first bytes: which offset shall fall on a 64-byte boundary. May be NULL. */
    size_t (*align_at)(struct str beginning);
    enum http_coding coding; /* of compressed messages */
    enum grpc_receiving state;
    char prefix[GRPC_PREFIX_BYTES];
    size_t prefix_len;
    unsigned n_reads_wanted; /* messages that were asked for: others are not begun, since what
                                      they
                                hold is bounded by no window */
    struct grpc_incoming_message *message;   /* the message at hand */
    struct grpc_pending_input pending_input; /* bytes behind it, while it waits */
};

/* No byte of a message has come behind the last one. */
static inline bool grpc_receiver_is_at_boundary(const struct grpc_receiver *receiver) {
    return receiver->state == GRPC_RECEIVING_PREFIX && receiver->prefix_len == 0;
}
/* May bytes go into a message? */
static inline bool grpc_receiver_may_add(const struct grpc_receiver *receiver) {
    return receiver->state < GRPC_RECEIVED &&
           (receiver->n_reads_wanted > 0 || !grpc_receiver_is_at_boundary(receiver));
}

/* Takes what belongs to the message at hand off the front of `data`, not past its end: with the
 * state GRPC_RECEIVED it is there. Only when it may.
 * Returns: ST_BAD_REQUEST, ST_BAD_ENCODING, ST_BODY_TOO_LARGE, ST_OVERLOADED, ST_NO_MEMORY: it is
 * of no more use then, but for grpc_receiver_stop. */
enum status grpc_receiver_add(struct grpc_receiver *receiver, struct str *data, struct error *err)
    __attribute__((warn_unused_result));
/* The message that waits, which is one that was wanted; the next one may begin. */
struct grpc_message *grpc_receiver_take(struct grpc_receiver *receiver);
/* Keeps what came behind the message that waits. Returns: ST_OVERLOADED, ST_NO_MEMORY. */
enum status grpc_receiver_buffer_copy(struct grpc_receiver *receiver, struct str data,
                                      struct error *err) __attribute__((warn_unused_result));
/* Goes on with what was kept, as far as it may. *n_used: so many bytes of it. Returns: as
 * grpc_receiver_add. */
enum status grpc_receiver_resume(struct grpc_receiver *receiver, size_t *n_used, struct error *err)
    __attribute__((warn_unused_result));
/* Returns: how many bytes of the message at hand are still to come, as far as that is known. */
uint64_t grpc_receiver_n_left(const struct grpc_receiver *receiver);
/* Nothing more is wanted: lets go of what is there. Returns: bytes that were kept. */
size_t grpc_receiver_stop(struct grpc_receiver *receiver);

#endif
