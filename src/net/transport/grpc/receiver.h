/* Assembles messages from DATA frames, for server and client, and the body of a request that is not
 * gRPC, which is one message without a prefix. Input after a complete message that
 * is not taken yet is buffered as pending input. Sans I/O.
 *
 * gRPC over HTTP2, "Length-Prefixed-Message".
 *
 * Back pressure: the caller returns flow-control window for bytes that were consumed only, so
 * pending input is bounded by the stream's window, and the peer waits. It also counts against the
 * body budget. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_RECEIVER_H
#define SLUICE_NET_TRANSPORT_GRPC_RECEIVER_H

#include "codec/grpc/text.h"
#include "net/transport/body.h"
#include "net/transport/budget.h"
#include "net/transport/grpc/message.h"

/* Input that arrived before it can be used, in order. Counts against the body budget. Zeroed memory
 * is empty. */
struct grpc_pending_input {
    char *data;
    size_t at, len; /* the bytes from `at` to `len` */
    size_t cap;
};

static inline struct str grpc_pending_input_bytes(const struct grpc_pending_input *pending) {
    return str_make(pending->data ? pending->data + pending->at : NULL, pending->len - pending->at);
}

/* Options shared by all receivers of a worker. */
struct grpc_receiver_options {
    struct arena_cache *arenas;
    struct body_pool *pool;
    struct net_budget *budget;
    uint64_t max_message_bytes;    /* decompressed */
    uint64_t message_memory_bytes; /* of a message's own arena; 0: no limit */
    const char *setting;           /* setting of max_message_bytes for errors: "--max-body-size" */
};

/* State of the receiver. */
enum grpc_receiving {
    GRPC_RECEIVING_PREFIX,
    GRPC_RECEIVING_FIRST_BYTES, /* until the alignment is known */
    GRPC_RECEIVING_BODY,
    GRPC_RECEIVED,          /* a complete message can be taken */
    GRPC_RECEIVING_STOPPED, /* no more messages are accepted */
};

/* Zeroed memory, except for the first members. */
struct grpc_receiver {
    const struct grpc_receiver_options *receiver_options;
    struct arena *arena; /* for the messages; NULL: each has its own */
    /* Given a message's first bytes, returns the offset that shall be 64-byte aligned. May be
     * NULL. */
    size_t (*align_at)(struct str beginning);
    enum http_coding coding; /* of compressed messages */
    enum grpc_receiving state;
    char prefix[GRPC_PREFIX_BYTES];
    size_t prefix_len;
    /* Requested messages; no other message is started, because the window does not bound its
     * memory. */
    unsigned n_reads_wanted;
    struct grpc_incoming_message *message;   /* the current message */
    struct grpc_pending_input pending_input; /* input after the current message */
    uint64_t n_inflated;                     /* bytes that came out of decompression so far */
};

/* Returns: whether no byte of another message has arrived. */
static inline bool grpc_receiver_is_at_boundary(const struct grpc_receiver *receiver) {
    return receiver->state == GRPC_RECEIVING_PREFIX && receiver->prefix_len == 0;
}
/* Returns: whether input may be added. */
static inline bool grpc_receiver_may_add(const struct grpc_receiver *receiver) {
    return receiver->state < GRPC_RECEIVED &&
           (receiver->n_reads_wanted > 0 || !grpc_receiver_is_at_boundary(receiver));
}

/* Consumes from the front of `data` what belongs to the current message; with state GRPC_RECEIVED
 * it is complete. Requires grpc_receiver_may_add. Returns: ST_BAD_REQUEST, ST_BAD_ENCODING,
 * ST_BODY_TOO_LARGE, ST_OVERLOADED, ST_NO_MEMORY: only grpc_receiver_stop may follow. */
enum status grpc_receiver_add(struct grpc_receiver *receiver, struct str *data,
                              struct error *err) SLUICE_MUST_USE;
/* The stream's bytes, up to its end, are one message without a prefix: in the arena of the
 * receiver, which must have one, in place of grpc_receiver_add's first call. Returns: as
 * body_init. */
enum status grpc_receiver_begin_unframed(struct grpc_receiver *receiver,
                                         const struct body_plan *plan, enum net_body_owner owner,
                                         struct error *err) SLUICE_MUST_USE;
/* The end of the stream arrived, and no input is pending: an unframed message is complete. Returns:
 * as body_finish. */
enum status grpc_receiver_end_unframed(struct grpc_receiver *receiver,
                                       struct error *err) SLUICE_MUST_USE;
/* Takes the complete message, which was requested; the next one may start. Owns:
 * grpc_message_free. */
struct grpc_message *grpc_receiver_take(struct grpc_receiver *receiver);
/* Buffers input after a complete message. Returns: ST_OVERLOADED, ST_NO_MEMORY. */
enum status grpc_receiver_buffer_copy(struct grpc_receiver *receiver, struct str data,
                                      struct error *err) SLUICE_MUST_USE;
/* Processes pending input as far as messages are requested, and until about `max_inflated` bytes
 * came out of decompression (struct inflate_slice); UINT64_MAX: no limit. *n_used: consumed bytes.
 * Returns: as grpc_receiver_add. */
enum status grpc_receiver_resume(struct grpc_receiver *receiver, uint64_t max_inflated,
                                 size_t *n_used, struct error *err) SLUICE_MUST_USE;
/* Returns: where the next bytes of the body may be read to, to be added then; *n_bytes: how many,
 * at least one. NULL: they can't be, because the body is not begun, compressed or of unknown
 * length. */
char *grpc_receiver_read_buffer(struct grpc_receiver *receiver, size_t *n_bytes);
/* Returns: the missing bytes of the current message, if known, else 0. */
uint64_t grpc_receiver_n_left(const struct grpc_receiver *receiver);
/* Returns: bytes of the budget reserved for what was received and not taken. */
uint64_t grpc_receiver_reserved_bytes(const struct grpc_receiver *receiver);
/* Stops receiving and drops what is buffered. Returns: dropped bytes of pending input. */
size_t grpc_receiver_stop(struct grpc_receiver *receiver);

#endif
