/* A list of messages, each a list of pieces behind a prefix, and a place in it. */
#include "net/transport/grpc/queue.h"

#include <stdlib.h>

#include "codec/http1/deflate.h"
#include "core/base/small_blocks.h"

enum { COMPRESS_FROM_BYTES = 1024 }; /* smaller messages do not get smaller */

/* ---- compression ----------------------------------------------------------------------------- */

static size_t bytes_of(const struct piece *pieces, size_t n) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        n_bytes += pieces[i].n_bytes;
    }
    return n_bytes;
}

/* Makes one piece of them, on the heap. Returns: false when it can't be done, and the message
 * leaves as it is. */
static bool compress_copy(const struct grpc_queue_options *options, const struct piece *pieces,
                          size_t n, size_t n_bytes, struct piece *out) {
    struct deflate *codec = deflate_new(options->coding, options->compression_level);
    size_t room = codec ? deflate_bound(codec, n_bytes) : SIZE_MAX;
    char *data = room <= UINT32_MAX ? malloc(room) : NULL;
    size_t len = 0;
    bool done = data != NULL;
    for (size_t i = 0; done && i < n; i++) {
        struct str in = str_make(pieces[i].data, pieces[i].n_bytes);
        size_t n_out = 0;
        done = deflate_step(codec, &in, i + 1 == n, data + len, room - len, &n_out);
        len += n_out;
    }
    deflate_free(codec);
    if (!done) {
        free(data);
        return false;
    }
    *out = (struct piece){data, len};
    return true;
}

/* ---- one message ----------------------------------------------------------------------------- */

/* With arena, it lives as long as that. */
static struct grpc_outgoing *outgoing_new(const struct grpc_queue_options *options,
                                          size_t n_pieces) {
    size_t n_bytes = sizeof(struct grpc_outgoing) + (n_pieces + 1) * sizeof(struct piece);
    struct grpc_outgoing *outgoing = options->arena ? arena_alloc(options->arena, n_bytes) : NULL;
    struct small_blocks *blocks = outgoing ? NULL : options->blocks;
    if (blocks) {
        outgoing = small_blocks_malloc(blocks, n_bytes);
    }
    if (outgoing) {
        *outgoing = (struct grpc_outgoing){.blocks = blocks};
    }
    return outgoing;
}

static void outgoing_free(struct grpc_outgoing *outgoing) {
    if (outgoing->release) {
        outgoing->release(outgoing->cookie);
    }
    if (outgoing->blocks) {
        small_blocks_free(outgoing->blocks, outgoing);
    }
}

static void fill(struct grpc_outgoing *outgoing, const struct piece *pieces, size_t n,
                 bool compressed) {
    struct grpc_prefix prefix = {compressed, (uint32_t)bytes_of(pieces, n)};
    grpc_prefix_encode(prefix, outgoing->prefix);
    outgoing->pieces[0] = (struct piece){outgoing->prefix, GRPC_PREFIX_BYTES};
    outgoing->n_pieces = 1;
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].n_bytes > 0) {
            outgoing->pieces[outgoing->n_pieces++] = pieces[i];
        }
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void append(struct grpc_queue *queue, struct grpc_outgoing *outgoing) {
    outgoing->queue = queue;
    *(queue->first ? &queue->last->next : &queue->first) = outgoing;
    queue->last = outgoing;
    queue->n_bytes += bytes_of(outgoing->pieces, outgoing->n_pieces);
}

bool grpc_queue_add(struct grpc_queue *queue, const struct grpc_queue_options *options,
                    const struct piece *pieces, size_t n_pieces, void (*release)(void *cookie),
                    void *cookie) {
    struct piece small;
    size_t n_bytes = bytes_of(pieces, n_pieces);
    if (n_bytes > UINT32_MAX) {
        return false;
    }
    bool compressed = options->coding != HTTP_IDENTITY && n_bytes >= COMPRESS_FROM_BYTES &&
                      compress_copy(options, pieces, n_pieces, n_bytes, &small);
    struct grpc_outgoing *outgoing = outgoing_new(options, compressed ? 1 : n_pieces);
    if (!outgoing) {
        free(compressed ? (void *)(uintptr_t)small.data : NULL);
        return false;
    }
    if (compressed) {
        fill(outgoing, &small, 1, true);
        outgoing->release = free;
        outgoing->cookie = (void *)(uintptr_t)small.data;
        if (release) {
            release(cookie); /* a copy leaves */
        }
    } else {
        fill(outgoing, pieces, n_pieces, false);
        outgoing->release = release;
        outgoing->cookie = cookie;
    }
    append(queue, outgoing);
    return true;
}

size_t grpc_queue_promise(struct grpc_queue *queue, size_t most) {
    queue->promised = queue->n_bytes < most ? queue->n_bytes : most;
    return queue->promised;
}

struct piece grpc_queue_next(const struct grpc_queue *queue) {
    const struct piece *piece = &queue->first->pieces[queue->piece];
    return (struct piece){(const char *)piece->data + queue->at, piece->n_bytes - queue->at};
}

/* The first message leaves the queue, but may be on its way to the socket. */
static void take_off(struct grpc_queue *queue, struct grpc_flight *flight) {
    struct grpc_outgoing *outgoing = queue->first;
    queue->first = outgoing->next;
    queue->piece = queue->at = 0;
    if (!queue->first) {
        queue->last = NULL;
    }
    queue->n_flying++;
    outgoing->next = flight->sent;
    flight->sent = outgoing;
}

void grpc_queue_advance(struct grpc_queue *queue, struct grpc_flight *flight, size_t n_bytes) {
    const struct grpc_outgoing *outgoing = queue->first;
    queue->at += n_bytes;
    queue->n_bytes -= n_bytes;
    queue->promised -= n_bytes;
    if (queue->at == outgoing->pieces[queue->piece].n_bytes) {
        queue->at = 0;
        if (++queue->piece == outgoing->n_pieces) {
            take_off(queue, flight);
        }
    }
}

bool grpc_queue_is_in_message(const struct grpc_queue *queue) {
    return queue->promised > 0 || queue->piece > 0 || queue->at > 0;
}

/* ---- letting go ------------------------------------------------------------------------------ */

void grpc_queue_drop(struct grpc_queue *queue, struct grpc_flight *flight) {
    bool begun = queue->piece > 0 || queue->at > 0;
    if (begun && (flight->output || flight->writing)) {
        take_off(queue, flight);
    }
    while (queue->first) {
        struct grpc_outgoing *outgoing = queue->first;
        queue->first = outgoing->next;
        outgoing_free(outgoing);
    }
    queue->last = NULL;
    queue->piece = queue->at = queue->n_bytes = queue->promised = 0;
}

void grpc_flight_land(struct grpc_flight *flight, void (*left)(struct grpc_queue *queue)) {
    struct grpc_outgoing *outgoing = flight->sent;
    flight->sent = NULL;
    flight->writing = false;
    while (outgoing) {
        struct grpc_queue *queue = outgoing->queue;
        struct grpc_outgoing *next = outgoing->next;
        outgoing_free(outgoing);
        outgoing = next;
        queue->n_flying--;
        left(queue);
    }
}
