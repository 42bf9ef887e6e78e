/* A body buffer keeps messages apart and cuts the output at their borders, so that a gRPC message
 * stays one message. */
#include "pick/session/body_buffer.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/metric/metric.h"

struct pick_body_buffer_entry {
    struct pick_body_chunk chunk;
    struct pick_slab *slab;
    STAILQ_ENTRY(pick_body_buffer_entry) link;
};

enum {
    /* Memory per chunk whatever its length: limits the number of empty chunks. */
    CHUNK_OVERHEAD_BYTES = 512,
    FREE_CHUNKS = 1024,
    /* A message occupies some KiB whatever its size; chunks up to this size are copied out of
     * it. */
    SMALL_BYTES = 4096,
    UNCOPIED_CHUNKS = 8,
    COPY_OVERHEAD_BYTES = 384, /* of a copied chunk: its reference, entry and share of a slab */
};

struct pick_body_chunk pick_body_chunk_of(const struct ext_proc_request *message,
                                          struct pick_message_ref *ref) {
    return (struct pick_body_chunk){.bytes = message->body,
                                    .end = message->end_of_stream,
                                    .end_without_message = message->end_without_message,
                                    .is_compressed = message->is_compressed,
                                    .ref = ref};
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static size_t add_piece(struct piece out[PICK_MAX_PIECES], size_t n, struct str bytes) {
    if (bytes.len > 0) {
        out[n++] = (struct piece){bytes.ptr, bytes.len};
    }
    return n;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high) {
    return value < low ? low : value > high ? high : value;
}

size_t pick_body_chunk_pieces(const struct pick_body_chunk *chunk, uint64_t at,
                              const struct pick_edits *edits, struct piece out[PICK_MAX_PIECES]) {
    uint64_t done = at, end = at + chunk->bytes.len;
    size_t n = 0;
    for (size_t i = 0; edits && i < edits->n; i++) {
        const struct pick_edit *edit = &edits->items[i];
        uint64_t from = clamp(edit->at, done, end);
        uint64_t to = clamp(edit->at + edit->n_bytes, done, end);
        n = add_piece(out, n, str_make(chunk->bytes.ptr + (done - at), (size_t)(from - done)));
        if (edit->at >= at && edit->at < end) { /* it starts in this chunk */
            n = add_piece(out, n, edit->with);
        }
        done = to;
    }
    return add_piece(out, n, str_make(chunk->bytes.ptr + (done - at), (size_t)(end - done)));
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Takes up to `most` bytes from the front of `from`. Returns: the number of pieces. */
static size_t cut_chunk(struct piece **from, size_t *n_from, size_t most,
                        struct piece out[PICK_MAX_PIECES]) {
    size_t n = 0;
    while (*n_from > 0 && most > 0) {
        struct piece *piece = *from;
        size_t n_bytes = piece->n_bytes < most ? piece->n_bytes : most;
        out[n++] = (struct piece){piece->data, n_bytes};
        piece->data = (const char *)piece->data + n_bytes;
        piece->n_bytes -= n_bytes;
        most -= n_bytes;
        if (piece->n_bytes == 0) {
            (*from)++;
            (*n_from)--;
        }
    }
    return n;
}

enum status pick_body_chunk_send(struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                                 const struct pick_body_chunk *chunk, uint64_t at,
                                 const struct pick_edits *edits, bool whole, struct error *err) {
    struct piece pieces[PICK_MAX_PIECES], out_chunk[PICK_MAX_PIECES], *left = pieces;
    size_t n_left = pick_body_chunk_pieces(chunk, at, edits, pieces);
    enum status st = ST_OK;
    if (n_left == 0 && !chunk->end && !whole) {
        return ST_OK; /* the edits removed all of it */
    }
    do {
        size_t n =
            cut_chunk(&left, &n_left, whole ? SIZE_MAX : EXT_PROC_MAX_CHUNK_BYTES, out_chunk);
        struct ext_proc_response answer = {.kind = kind,
                                           .body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE,
                                           .body = out_chunk,
                                           .n_body = n,
                                           .end_of_stream = chunk->end && n_left == 0,
                                           .end_without_message = chunk->end_without_message,
                                           .is_compressed = chunk->is_compressed};
        st = pick_send_queue_push(send_queue, &answer, n > 0 ? chunk->ref : NULL, err);
    } while (st == ST_OK && n_left > 0);
    return st;
}

/* ---- buffering ------------------------------------------------------------------------------- */

void pick_body_buffer_init(struct pick_body_buffer *body_buffer, uint64_t max_bytes) {
    *body_buffer = (struct pick_body_buffer){.max_bytes = max_bytes};
    STAILQ_INIT(&body_buffer->entries);
}

enum status pick_body_buffer_check_limit(const struct pick_body_buffer *body_buffer,
                                         struct error *err) {
    uint64_t cost = body_buffer->n_chunks > FREE_CHUNKS
                        ? (body_buffer->n_chunks - FREE_CHUNKS) * CHUNK_OVERHEAD_BYTES
                        : 0;
    if (body_buffer->n_bytes <= body_buffer->max_bytes && cost <= body_buffer->max_bytes) {
        return ST_OK;
    }
    char pieces[40] = "";
    if (body_buffer->n_chunks > 0) { /* none is held where the caller keeps the body */
        (void)snprintf(pieces, sizeof(pieces), " in %zu pieces", body_buffer->n_chunks);
    }
    return error_set(
        err, ST_BODY_TOO_LARGE,
        "the first %" PRIu64
        " bytes of the body do not contain the model's name (--max-body-size); received %" PRIu64
        "%s",
        body_buffer->max_bytes, body_buffer->n_bytes, pieces);
}

bool pick_body_buffer_would_copy(const struct pick_body_buffer *body_buffer, size_t n_bytes) {
    return n_bytes <= SMALL_BYTES && body_buffer->n_chunks >= UNCOPIED_CHUNKS;
}

enum status pick_body_buffer_append(struct pick_body_buffer *body_buffer,
                                    struct pick_send_queue *send_queue,
                                    const struct pick_body_chunk *chunk, struct error *err) {
    bool copied = pick_body_buffer_would_copy(body_buffer, chunk->bytes.len);
    struct pick_message_ref *ref =
        copied ? pick_message_ref_copy(send_queue, chunk->bytes) : chunk->ref;
    struct pick_slab *slab;
    struct pick_body_buffer_entry *added;
    body_buffer->n_bytes += chunk->bytes.len;
    body_buffer->n_chunks++;
    metric_add(METRIC_PICK_HELD_BYTES, (int64_t)chunk->bytes.len);
    added = ref ? pick_send_queue_alloc(send_queue, sizeof(*added), &slab) : NULL;
    if (!added) {
        if (ref && copied) {
            pick_message_unref(ref);
        }
        return error_no_memory(err, "a piece of the body");
    }
    *added = (struct pick_body_buffer_entry){.chunk = *chunk, .slab = slab};
    added->chunk.ref = ref;
    if (copied) { /* the chunk has the copy's first reference */
        added->chunk.bytes = ref->message.data;
    } else {
        ref->n_refs++;
    }
    body_buffer->n_held_bytes +=
        copied ? chunk->bytes.len + COPY_OVERHEAD_BYTES : PICK_MESSAGE_OVERHEAD_BYTES;
    STAILQ_INSERT_TAIL(&body_buffer->entries, added, link);
    return ST_OK;
}

static void remove_first_chunk(struct pick_body_buffer *body_buffer) {
    struct pick_body_buffer_entry *first = STAILQ_FIRST(&body_buffer->entries);
    STAILQ_REMOVE_HEAD(&body_buffer->entries, link);
    pick_message_unref(first->chunk.ref);
    pick_slab_unref(first->slab);
}

enum status pick_body_buffer_flush(struct pick_body_buffer *body_buffer,
                                   struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                                   const struct pick_edits *edits, struct error *err) {
    uint64_t at = 0;
    enum status st = ST_OK;
    const struct pick_body_buffer_entry *first;
    while ((first = STAILQ_FIRST(&body_buffer->entries)) && st == ST_OK) {
        st = pick_body_chunk_send(send_queue, kind, &first->chunk, at, edits, false, err);
        at += first->chunk.bytes.len;
        remove_first_chunk(body_buffer);
    }
    pick_body_buffer_clear(body_buffer);
    return st;
}

void pick_body_buffer_clear(struct pick_body_buffer *body_buffer) {
    if (body_buffer->n_chunks == 0) {
        return;
    }
    while (!STAILQ_EMPTY(&body_buffer->entries)) {
        remove_first_chunk(body_buffer);
    }
    metric_add(METRIC_PICK_HELD_BYTES, -(int64_t)body_buffer->n_bytes);
    pick_body_buffer_init(body_buffer, body_buffer->max_bytes);
}
