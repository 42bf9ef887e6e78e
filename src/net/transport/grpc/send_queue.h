/* Messages to send on a stream, of server and client: queued, reserved by nghttp2 as windows allow,
 * and collected into an output for one write, large pieces in place. Sans I/O.
 *
 * Back pressure: the queue has no limit; its users check n_bytes (grpc_queued_bytes,
 * grpc_client_queued_bytes). Nothing is collected while the write before it is in progress. */
#ifndef SLUICE_NET_TRANSPORT_GRPC_SEND_QUEUE_H
#define SLUICE_NET_TRANSPORT_GRPC_SEND_QUEUE_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/grpc/text.h"
#include "core/base/piece.h"

struct grpc_output;
struct grpc_send_queue;

/* A queued message. */
struct grpc_queued_message {
    struct grpc_queued_message *next;
    struct grpc_send_queue *queue;
    void (*release)(void *user);
    void *user;
    void *compressed; /* what is sent in place of the caller's bytes, on the heap; or NULL */
    bool on_heap;     /* not in an arena */
    char prefix[GRPC_PREFIX_BYTES];
    size_t n_pieces;
    struct piece pieces[]; /* the prefix first, unless unframed */
};

/* The messages of a connection whose bytes are being written. */
struct grpc_write_batch {
    struct grpc_queued_message *sent; /* collected for the current write */
    struct grpc_output *output;       /* while collecting */
    bool writing;                     /* the collected output is not sent yet */
};

/* Send queue of a stream. Zeroed memory is empty. */
struct grpc_send_queue {
    struct grpc_queued_message *first, *last;
    size_t piece, at; /* read position in the first message */
    size_t n_bytes;
    size_t n_messages;
    size_t n_reserved;   /* of n_bytes, promised for a frame whose head nghttp2 has made */
    unsigned n_in_write; /* messages with bytes in a write batch */
};

enum { GRPC_COMPRESS_FROM_BYTES = 1024 }; /* smaller messages do not shrink */

struct grpc_send_queue_options {
    struct arena *arena;     /* for the message's descriptor; NULL: the heap */
    enum http_coding coding; /* of messages that are worth compressing */
    int compression_level;   /* 1 to 9 */
    bool is_compressed;      /* the message, in that coding: grpc_compress_copy */
    bool is_unframed;        /* no prefix: a part of the body of a response that is not gRPC; not
                                empty, never compressed */
};

/* Compresses the pieces into one, in `arena`, NULL: on the heap. Returns: false on failure; the
 * message can be sent uncompressed then. Thread: any, which alone uses `arena`. */
bool grpc_compress_copy(const struct grpc_send_queue_options *options, struct arena *arena,
                        const struct piece *pieces, size_t n, struct piece *out) SLUICE_MUST_USE;

/* Appends a message made of these pieces. The list is copied; the bytes must stay valid until
 * `release` (may be NULL) is called, exactly once; also where a compressed copy is sent instead, as
 * what the caller has counted for the message is held until then. Returns: false when it can't be
 * sent (no memory, or 4 GiB or more with a prefix): nothing is taken and nothing released. */
bool grpc_send_queue_push(struct grpc_send_queue *queue,
                          const struct grpc_send_queue_options *options, const struct piece *pieces,
                          size_t n_pieces, void (*release)(void *user), void *user) SLUICE_MUST_USE;
/* Returns: the length for the next DATA frame, from GRPC_SMALL_FRAME_BYTES to the lesser of `most`
 * and GRPC_LARGE_FRAME_BYTES, or `most` where that is less than the former: large where the queue
 * begins with few large pieces, so that a frame fits an empty output. nghttp2 cuts it down to the
 * windows. */
size_t grpc_send_queue_frame_bytes(const struct grpc_send_queue *queue, size_t most);
/* Reserves up to `most` bytes for a frame. Returns: the number of bytes, which
 * grpc_output_add_data_frame then collects. */
size_t grpc_send_queue_reserve(struct grpc_send_queue *queue, size_t most);
/* Returns: whether a part of a message was sent or reserved. */
bool grpc_send_queue_is_mid_message(const struct grpc_send_queue *queue);
/* Copies the reserved bytes and drops the rest, so that the messages' own bytes, other than those
 * collected for the current write, may go: for a stream that was reset. Returns: false when out of
 * memory; nothing has changed then. */
bool grpc_send_queue_keep_reserved_copy(struct grpc_send_queue *queue) SLUICE_MUST_USE;
/* Drops the queued messages; those in a write batch are released when it is complete. */
void grpc_send_queue_clear(struct grpc_send_queue *queue, struct grpc_write_batch *batch);
/* The collected output was sent, or never will be: releases its messages; calls `left` for each. */
void grpc_write_batch_complete(struct grpc_write_batch *batch,
                               void (*left)(struct grpc_send_queue *queue));

/* ---- output ---------------------------------------------------------------------------------- */

enum {
    GRPC_OUTPUT_PIECES = 256,
    GRPC_OUTPUT_BYTES = 65536,
    /* RFC 9113, 6.5.2: every peer takes so much, and other streams are not kept waiting. */
    GRPC_SMALL_FRAME_BYTES = 16384,
    /* Of a large message, for peers that take it: some 30 microseconds on a fast network. */
    GRPC_LARGE_FRAME_BYTES = 256 << 10,
};

struct grpc_output {
    struct piece pieces[GRPC_OUTPUT_PIECES];
    size_t n;
    size_t used;   /* bytes used of `bytes` */
    size_t n_data; /* bytes of all DATA frames */
    size_t n_copied;
    char bytes[GRPC_OUTPUT_BYTES];
};

/* Empties the output. */
static inline void grpc_output_clear(struct grpc_output *output) {
    output->n = output->used = output->n_data = output->n_copied = 0;
}
/* One spare output serves all connections whose socket takes everything at once. Returns: the spare
 * one, or a new one, not empty; NULL when out of memory. Owns: the caller, until
 * grpc_output_give. */
struct grpc_output *grpc_output_take(struct grpc_output **spare);
/* Keeps the output as the spare one, or frees it. */
void grpc_output_give(struct grpc_output **spare, struct grpc_output *output);
/* Copies a few bytes, which must fit. */
void grpc_output_add_copy(struct grpc_output *output, const void *data, size_t n_bytes);
/* Collects what fits of nghttp2's output. Returns: its error, or 0. */
int grpc_output_collect(struct grpc_output *output, nghttp2_session *h2);
/* Within nghttp2's send_data callback: adds a DATA frame of its head (9 bytes) and `n_bytes` that
 * the queue has reserved. Returns: false when the output has no capacity for it now. */
bool grpc_output_add_data_frame(struct grpc_output *output, struct grpc_send_queue *queue,
                                struct grpc_write_batch *batch, const uint8_t *head,
                                size_t n_bytes);

#endif
