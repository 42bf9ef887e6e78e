/* Messages on their way out on a stream: a server's answers, a client's requests. They are queued,
 * promised to nghttp2 as windows allow, and collected for a write from where their bytes lie. Sans
 * I/O. For the grpc_*.c files of this room only. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_SEND_QUEUE_H
#define SLUICE_NET_TRANSPORT_GRPC_SEND_QUEUE_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/protobuf/grpc_text.h"
#include "core/tensor/tensor.h"

struct grpc_output;
struct small_blocks;
struct grpc_send_queue;

/* One of them. */
struct grpc_queued_message {
    struct grpc_queued_message *next;
    struct grpc_send_queue *queue;
    void (*release)(void *user);
    void *user;
    struct small_blocks *blocks; /* whose it is; NULL: an arena's */
    char prefix[GRPC_PREFIX_BYTES];
    size_t n_pieces;
    struct piece pieces[]; /* the prefix first */
};

/* What of a connection's messages is on its way to the socket. */
struct grpc_write_batch {
    struct grpc_queued_message *sent; /* collected for the write at hand */
    struct grpc_output *output;       /* while collecting */
    bool writing;                     /* what was collected has not left yet */
};

/* Of a stream. Zeroed memory is an empty one. */
struct grpc_send_queue {
    struct grpc_queued_message *first, *last;
    size_t piece, at; /* how far the first one has been collected */
    size_t n_bytes;
    size_t n_reserved;   /* of them, in a frame whose head nghttp2 has made already */
    unsigned n_in_write; /* messages of which bytes are on their way to the socket */
};

struct grpc_send_queue_options {
    struct arena *arena;         /* for what is kept of a message; may be NULL */
    struct small_blocks *blocks; /* for that of which no arena has room; not NULL */
    enum http_coding coding;     /* messages worth it are compressed */
    int compression_level;       /* 1 to 9 */
};

/* Puts a message of these pieces behind those before; a list of pieces is copied, their bytes stay
 * where they are until `release` (may be NULL), called exactly once; at once where a compressed
 * copy leaves in their place. Returns: false when it can't be sent (no memory, 4 GiB): nothing was
 * taken, and nothing is released. */
bool grpc_send_queue_push(struct grpc_send_queue *queue,
                          const struct grpc_send_queue_options *options, const struct piece *pieces,
                          size_t n_pieces, void (*release)(void *user), void *user)
    __attribute__((warn_unused_result));
/* nghttp2 has room for at most so many bytes. Returns: how many it gets, through
 * grpc_output_add_data_frame. */
size_t grpc_send_queue_reserve(struct grpc_send_queue *queue, size_t most);
/* Has a part of a message left, or been promised? */
bool grpc_send_queue_is_mid_message(const struct grpc_send_queue *queue);
/* Lets go of what is queued; of what is on its way to the socket, when it has left. */
void grpc_send_queue_clear(struct grpc_send_queue *queue, struct grpc_write_batch *flight);
/* What was collected has left, or never will: releases it; `left` is told of each message. */
void grpc_write_batch_complete(struct grpc_write_batch *flight,
                               void (*left)(struct grpc_send_queue *queue));

/* ---- output ---------------------------------------------------------------------------------- */

enum { GRPC_OUTPUT_PIECES = 256, GRPC_OUTPUT_BYTES = 65536 };

struct grpc_output {
    struct piece pieces[GRPC_OUTPUT_PIECES];
    size_t n;
    size_t used; /* of bytes */
    size_t n_copied;
    char bytes[GRPC_OUTPUT_BYTES];
};

/* Empties it. */
static inline void grpc_output_clear(struct grpc_output *output) {
    output->n = output->used = output->n_copied = 0;
}
/* A few bytes, which must fit. */
void grpc_output_add_copy(struct grpc_output *output, const void *data, size_t n_bytes);
/* As much as fits of what nghttp2 has to say. Returns: its error, or 0. */
int grpc_output_collect(struct grpc_output *output, nghttp2_session *h2);
/* From nghttp2's send_data callback, while collecting: a DATA frame of its head (9 bytes) and
 * `n_bytes` that the queue has promised. Returns: false when there is no room for it now. */
bool grpc_output_add_data_frame(struct grpc_output *output, struct grpc_send_queue *queue,
                                struct grpc_write_batch *flight, const uint8_t *head,
                                size_t n_bytes);

#endif
