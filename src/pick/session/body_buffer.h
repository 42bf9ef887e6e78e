/* A body buffer: chunks of a request's body that are held, without copying large ones, until the
 * model is known, and then sent on with the model's name replaced where needed. */
#ifndef SLUICE_PICK_SESSION_BODY_BUFFER_H
#define SLUICE_PICK_SESSION_BODY_BUFFER_H

#include <sys/queue.h>

#include "pick/session/send_queue.h"

/* The part of a body in one message. */
struct pick_body_chunk {
    struct str bytes;
    bool end, end_without_message, is_compressed;
    struct pick_message_ref *ref; /* the message that has the bytes */
};

struct pick_body_chunk pick_body_chunk_of(const struct ext_proc_request *message,
                                          struct pick_message_ref *ref);

/* The pieces of a chunk at offset `at` of its body, with the edits that overlap it applied; an edit
 * may span several chunks. Returns: the number of pieces. */
enum { PICK_MAX_PIECES = 5 };
size_t pick_body_chunk_pieces(const struct pick_body_chunk *chunk, uint64_t at,
                              const struct pick_edits *edits, struct piece out[PICK_MAX_PIECES]);

/* Sends a chunk in a duplex mode, as messages of at most EXT_PROC_MAX_CHUNK_BYTES; the last one has
 * the chunk's end_of_stream. `whole`: as one message (mode GRPC, where a chunk is a gRPC message).
 * `edits` may be NULL. Returns: as pick_send_queue_push. */
enum status pick_body_chunk_send(struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                                 const struct pick_body_chunk *chunk, uint64_t at,
                                 const struct pick_edits *edits, bool whole,
                                 struct error *err) SLUICE_MUST_USE;

struct pick_body_buffer_entry;

struct pick_body_buffer {
    STAILQ_HEAD(, pick_body_buffer_entry) entries;
    uint64_t n_bytes;
    size_t n_chunks;
    uint64_t n_held_bytes; /* memory besides received messages, see pick_session_held_bytes */
    uint64_t max_bytes;
};

void pick_body_buffer_init(struct pick_body_buffer *body_buffer, uint64_t max_bytes);
/* Whether the buffer is over its limit. Returns: ST_BODY_TOO_LARGE. */
enum status pick_body_buffer_check_limit(const struct pick_body_buffer *body_buffer,
                                         struct error *err) SLUICE_MUST_USE;
/* Whether pick_body_buffer_append will copy a chunk of this size: small ones are copied, except for
 * the first few, because a message occupies more memory than its bytes. */
bool pick_body_buffer_would_copy(const struct pick_body_buffer *body_buffer, size_t n_bytes);
/* Adds a chunk and takes a reference to its message, or copies its bytes: then chunk->ref may be
 * NULL. Returns: ST_NO_MEMORY. */
enum status pick_body_buffer_append(struct pick_body_buffer *body_buffer,
                                    struct pick_send_queue *send_queue,
                                    const struct pick_body_chunk *chunk,
                                    struct error *err) SLUICE_MUST_USE;
/* Sends all chunks and empties the buffer. Returns: as pick_send_queue_push. */
enum status pick_body_buffer_flush(struct pick_body_buffer *body_buffer,
                                   struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                                   const struct pick_edits *edits,
                                   struct error *err) SLUICE_MUST_USE;
/* Counts a chunk that the caller keeps, and nothing of it is held here. */
static inline void pick_body_buffer_count(struct pick_body_buffer *body_buffer, size_t n_bytes) {
    body_buffer->n_bytes += n_bytes;
}
void pick_body_buffer_clear(struct pick_body_buffer *body_buffer);

#endif
