/* A queue of messages, each a list of pieces after a prefix, with a read position; and the output
 * into which frames are collected. */
#include "net/transport/grpc/send_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "codec/http1/content_coding.h"
#include "net/transport/h2_scan.h"

/* ---- compression ----------------------------------------------------------------------------- */

static size_t total_bytes(const struct piece *pieces, size_t n) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        n_bytes += pieces[i].n_bytes;
    }
    return n_bytes;
}

bool grpc_compress_copy(const struct grpc_send_queue_options *options, struct arena *arena,
                        const struct piece *pieces, size_t n, struct piece *out) {
    struct deflate *codec = deflate_new(options->coding, options->compression_level);
    size_t capacity = codec ? deflate_bound(codec, total_bytes(pieces, n)) : SIZE_MAX;
    char *data = capacity > UINT32_MAX ? NULL
                 : arena               ? arena_alloc(arena, capacity)
                                       : malloc(capacity);
    size_t len = 0;
    bool done = data != NULL;
    for (size_t i = 0; done && i < n; i++) {
        size_t n_out = 0;
        done = deflate_piece(codec, arena, str_make(pieces[i].data, pieces[i].n_bytes), i + 1 == n,
                             data + len, capacity - len, &n_out);
        len += n_out;
    }
    deflate_free(codec);
    if (!done) {
        free(arena ? NULL : data);
        return false;
    }
    *out = (struct piece){data, len};
    return true;
}

/* ---- one message ----------------------------------------------------------------------------- */

/* In the arena if there is one with memory for it, else on the heap. */
static struct grpc_queued_message *message_new(const struct grpc_send_queue_options *options,
                                               size_t n_pieces) {
    size_t n_bytes = sizeof(struct grpc_queued_message) + (n_pieces + 1) * sizeof(struct piece);
    struct grpc_queued_message *message =
        options->arena ? arena_alloc(options->arena, n_bytes) : NULL;
    bool on_heap = !message;
    if (on_heap) {
        message = malloc(n_bytes);
    }
    if (message) {
        *message = (struct grpc_queued_message){.on_heap = on_heap};
    }
    return message;
}

static void message_free(struct grpc_queued_message *message) {
    if (message->release) {
        message->release(message->user);
    }
    free(message->compressed);
    if (message->on_heap) {
        free(message);
    }
}

static void add_prefix(struct grpc_queued_message *message, size_t n_bytes, bool compressed) {
    struct grpc_prefix prefix = {compressed, (uint32_t)n_bytes};
    grpc_prefix_encode(prefix, message->prefix);
    message->pieces[0] = (struct piece){message->prefix, GRPC_PREFIX_BYTES};
    message->n_pieces = 1;
}

static void add_pieces(struct grpc_queued_message *message, const struct piece *pieces, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].n_bytes > 0) {
            message->pieces[message->n_pieces++] = pieces[i];
        }
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

bool grpc_send_queue_push(struct grpc_send_queue *queue,
                          const struct grpc_send_queue_options *options, const struct piece *pieces,
                          size_t n_pieces, void (*release)(void *user), void *user) {
    struct piece small;
    size_t n_bytes = total_bytes(pieces, n_pieces);
    if (n_bytes > UINT32_MAX && !options->is_unframed) {
        return false;
    }
    bool compressed = options->coding != HTTP_IDENTITY && n_bytes >= GRPC_COMPRESS_FROM_BYTES &&
                      !options->is_compressed &&
                      grpc_compress_copy(options, NULL, pieces, n_pieces, &small);
    struct grpc_queued_message *message = message_new(options, compressed ? 1 : n_pieces);
    if (!message) {
        free(compressed ? (void *)(uintptr_t)small.data : NULL);
        return false;
    }
    if (compressed) {
        add_prefix(message, small.n_bytes, true);
        add_pieces(message, &small, 1);
        message->compressed = (void *)(uintptr_t)small.data;
    } else {
        if (!options->is_unframed) {
            add_prefix(message, n_bytes, options->is_compressed);
        }
        add_pieces(message, pieces, n_pieces);
    }
    message->release = release;
    message->user = user;
    message->queue = queue;
    *(queue->first ? &queue->last->next : &queue->first) = message;
    queue->last = message;
    queue->n_bytes += total_bytes(message->pieces, message->n_pieces);
    queue->n_messages++;
    return true;
}

size_t grpc_send_queue_reserve(struct grpc_send_queue *queue, size_t most) {
    queue->n_reserved = queue->n_bytes < most ? queue->n_bytes : most;
    return queue->n_reserved;
}

/* Moves the first message from the queue to the write batch, where it stays until its bytes are
 * sent. */
static void move_to_batch(struct grpc_send_queue *queue, struct grpc_write_batch *batch) {
    struct grpc_queued_message *message = queue->first;
    queue->first = message->next;
    queue->piece = queue->at = 0;
    if (!queue->first) {
        queue->last = NULL;
    }
    queue->n_in_write++;
    queue->n_messages--;
    message->next = batch->sent;
    batch->sent = message;
}

/* Marks bytes as collected. */
static void grpc_send_queue_advance(struct grpc_send_queue *queue, struct grpc_write_batch *batch,
                                    size_t n_bytes) {
    const struct grpc_queued_message *message = queue->first;
    queue->at += n_bytes;
    queue->n_bytes -= n_bytes;
    queue->n_reserved -= n_bytes;
    if (queue->at == message->pieces[queue->piece].n_bytes) {
        queue->at = 0;
        if (++queue->piece == message->n_pieces) {
            move_to_batch(queue, batch);
        }
    }
}

bool grpc_send_queue_is_mid_message(const struct grpc_send_queue *queue) {
    return queue->n_reserved > 0 || queue->piece > 0 || queue->at > 0;
}

/* ---- dropping and completing ----------------------------------------------------------------- */

void grpc_send_queue_clear(struct grpc_send_queue *queue, struct grpc_write_batch *batch) {
    bool begun = queue->piece > 0 || queue->at > 0;
    if (begun && (batch->output || batch->writing)) {
        move_to_batch(queue, batch);
    }
    while (queue->first) {
        struct grpc_queued_message *message = queue->first;
        queue->first = message->next;
        message_free(message);
    }
    queue->last = NULL;
    queue->piece = queue->at = queue->n_bytes = queue->n_messages = queue->n_reserved = 0;
}

/* Copies the next `n_bytes` of the queue, from its read position on. */
static void copy_next(const struct grpc_send_queue *queue, char *out, size_t n_bytes) {
    const struct grpc_queued_message *message = queue->first;
    size_t piece = queue->piece, at = queue->at;
    while (n_bytes > 0) {
        const struct piece *from = &message->pieces[piece];
        size_t n = from->n_bytes - at < n_bytes ? from->n_bytes - at : n_bytes;
        memcpy(out, (const char *)from->data + at, n);
        out += n;
        n_bytes -= n;
        at = 0;
        if (++piece == message->n_pieces) {
            message = message->next;
            piece = 0;
        }
    }
}

bool grpc_send_queue_keep_reserved_copy(struct grpc_send_queue *queue) {
    struct grpc_queued_message *message = queue->first;
    size_t n_bytes = queue->n_reserved;
    if (n_bytes == 0) {
        return true;
    }
    char *copy = malloc(n_bytes);
    if (!copy) {
        return false;
    }
    copy_next(queue, copy, n_bytes);
    while (message->next) {
        struct grpc_queued_message *next = message->next;
        message->next = next->next;
        message_free(next);
    }
    if (message->release) {
        message->release(message->user);
    }
    message->release = free;
    message->user = copy;
    message->pieces[0] = (struct piece){copy, n_bytes};
    message->n_pieces = 1;
    queue->last = message;
    queue->piece = queue->at = 0;
    queue->n_bytes = n_bytes;
    queue->n_messages = 1;
    return true;
}

void grpc_write_batch_complete(struct grpc_write_batch *batch,
                               void (*left)(struct grpc_send_queue *queue)) {
    struct grpc_queued_message *message = batch->sent;
    batch->sent = NULL;
    batch->writing = false;
    while (message) {
        struct grpc_send_queue *queue = message->queue;
        struct grpc_queued_message *next = message->next;
        message_free(message);
        message = next;
        queue->n_in_write--;
        left(queue);
    }
}

enum {
    /* The most that nghttp2 returns at once: a frame of 16 KiB, and a few bytes to spare. */
    FRAME_BYTES = GRPC_SMALL_FRAME_BYTES + 32,
    SMALL_BYTES = 1024, /* pieces up to this size are copied */
    /* Of a DATA frame; one of up to GRPC_SMALL_FRAME_BYTES has no more. */
    MAX_LARGE_PIECES = FRAME_BYTES / SMALL_BYTES,
    /* A DATA frame is its head, large pieces, and coalesced small ones between them. */
    FRAME_PIECES = 2 * MAX_LARGE_PIECES + 2,
    /* What is collected for one write is sent before a frame that comes later, of another stream
     * say. */
    MAX_DATA_BYTES = 1 << 20,
};

static_assert((int)FRAME_BYTES <= (int)GRPC_OUTPUT_BYTES &&
                  (int)FRAME_PIECES <= (int)GRPC_OUTPUT_PIECES,
              "whatever a frame is made of, it fits an empty output");

/* The rest of a large piece, at the end of a frame, may be small. */
size_t grpc_send_queue_frame_bytes(const struct grpc_send_queue *queue, size_t most) {
    const struct grpc_queued_message *message = queue->first;
    size_t piece = queue->piece, at = queue->at, n = 0, n_small = 0, n_large = 0;
    most = most < GRPC_LARGE_FRAME_BYTES ? most : GRPC_LARGE_FRAME_BYTES;
    if (most <= GRPC_SMALL_FRAME_BYTES || queue->n_bytes <= GRPC_SMALL_FRAME_BYTES) {
        return most < GRPC_SMALL_FRAME_BYTES ? most : GRPC_SMALL_FRAME_BYTES;
    }
    while (message && n < most && n_large < MAX_LARGE_PIECES &&
           n_small < GRPC_SMALL_FRAME_BYTES - 2 * SMALL_BYTES) {
        size_t left = message->pieces[piece].n_bytes - at;
        n += left;
        n_large += left > SMALL_BYTES;
        n_small += left > SMALL_BYTES ? 0 : left;
        at = 0;
        if (++piece == message->n_pieces) {
            message = message->next;
            piece = 0;
        }
    }
    n = n < most ? n : most;
    return n > GRPC_SMALL_FRAME_BYTES ? n : GRPC_SMALL_FRAME_BYTES;
}

static bool has_room(const struct grpc_output *output) {
    return output->n + FRAME_PIECES <= GRPC_OUTPUT_PIECES &&
           output->used + FRAME_BYTES <= GRPC_OUTPUT_BYTES && output->n_data < MAX_DATA_BYTES;
}

struct grpc_output *grpc_output_take(struct grpc_output **spare) {
    struct grpc_output *output = *spare;
    *spare = NULL;
    return output ? output : malloc(sizeof(*output));
}

void grpc_output_give(struct grpc_output **spare, struct grpc_output *output) {
    if (*spare) {
        free(output);
    } else {
        *spare = output;
    }
}

void grpc_output_add_copy(struct grpc_output *output, const void *data, size_t n_bytes) {
    char *at = output->bytes + output->used;
    struct piece *last = output->n > 0 ? &output->pieces[output->n - 1] : NULL;
    memcpy(at, data, n_bytes);
    output->used += n_bytes;
    if (last && (const char *)last->data + last->n_bytes == at) {
        last->n_bytes += n_bytes;
    } else {
        output->pieces[output->n++] = (struct piece){at, n_bytes};
    }
}

bool grpc_output_add_data_frame(struct grpc_output *output, struct grpc_send_queue *queue,
                                struct grpc_write_batch *batch, const uint8_t *head,
                                size_t n_bytes) {
    if (!has_room(output)) {
        return false;
    }
    assert(n_bytes == queue->n_reserved);
    output->n_data += n_bytes;
    grpc_output_add_copy(output, head, H2_FRAME_HEAD_BYTES);
    while (n_bytes > 0) {
        const struct piece *whole = &queue->first->pieces[queue->piece];
        struct piece piece = {(const char *)whole->data + queue->at, whole->n_bytes - queue->at};
        piece.n_bytes = piece.n_bytes < n_bytes ? piece.n_bytes : n_bytes;
        if (piece.n_bytes <= SMALL_BYTES) {
            grpc_output_add_copy(output, piece.data, piece.n_bytes);
            output->n_copied += piece.n_bytes;
        } else {
            output->pieces[output->n++] = piece;
        }
        grpc_send_queue_advance(queue, batch, piece.n_bytes);
        n_bytes -= piece.n_bytes;
    }
    return true;
}

int grpc_output_collect(struct grpc_output *output, nghttp2_session *h2) {
    while (has_room(output)) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(h2, &data);
        if (n <= 0) {
            return (int)n;
        }
        assert(n <= FRAME_BYTES);
        grpc_output_add_copy(output, data, (size_t)n);
    }
    return 0;
}
