/* A body that comes in messages and leaves in messages, without being copied: first held, until
 * its model is known, then sent on, with the model's value replaced where it has to be. */
#ifndef SLUICE_PICK_SESSION_BODY_BUFFER_H
#define SLUICE_PICK_SESSION_BODY_BUFFER_H

#include "pick/session/send_queue.h"

/* `n_bytes` of the body from offset `at` are replaced by `with`. */
struct pick_edit {
    uint64_t at, n_bytes;
    struct str with;
};
/* Sorted by offset. */
struct pick_edits {
    struct pick_edit items[2];
    size_t n;
    int64_t growth; /* change of the body's length, in bytes */
};

/* One message's part of it. */
struct pick_body_chunk {
    struct str bytes;
    bool end, end_without_message, is_compressed;
    struct pick_message_ref *ref; /* whose bytes they are */
};

struct pick_body_chunk pick_body_chunk_of(const struct ext_proc_request *message,
                                          struct pick_message_ref *ref);

/* The pieces of a part that begins at `at` of its body, with the edits that are in it; ones that
 * reach over several parts, too. Returns: how many. */
enum { PICK_MAX_PIECES = 5 };
size_t pick_body_chunk_pieces(const struct pick_body_chunk *chunk, uint64_t at,
                              const struct pick_edits *edits, struct piece out[PICK_MAX_PIECES]);

/* Sends a part on, in a duplex mode: in chunks of at most EXT_PROC_MAX_CHUNK_BYTES, of which the
 * last has the end; with `whole` (mode GRPC, where it is a message) in one. `edits` may be NULL.
 * Returns: as pick_send_queue_push. */
enum status pick_body_chunk_send(struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                                 const struct pick_body_chunk *chunk, uint64_t at,
                                 const struct pick_edits *edits, bool whole, struct error *err)
    __attribute__((warn_unused_result));

struct pick_body_buffer_entry;

struct pick_body_buffer {
    struct pick_body_buffer_entry *first, **end;
    uint64_t n_bytes;
    size_t n_chunks;
    uint64_t max_bytes;
};

void pick_body_buffer_init(struct pick_body_buffer *body_buffer, uint64_t max_bytes);
/* Is it too much to go on holding it? Returns: ST_BODY_TOO_LARGE. */
enum status pick_body_buffer_check_limit(const struct pick_body_buffer *body_buffer,
                                         struct error *err) __attribute__((warn_unused_result));
/* Will a part of so many bytes be copied? Small ones are, behind the first few: what a message
 * costs besides its bytes is more. */
bool pick_body_buffer_would_copy(const struct pick_body_buffer *body_buffer, size_t n_bytes);
/* Adds a part, whose message it uses from now on, unless it copies it: then `of` may be NULL.
 * Returns: ST_NO_MEMORY. */
enum status pick_body_buffer_append(struct pick_body_buffer *body_buffer,
                                    struct pick_send_queue *send_queue,
                                    const struct pick_body_chunk *chunk, struct error *err)
    __attribute__((warn_unused_result));
/* Sends all of it on and lets go of it. Returns: as pick_send_queue_push. */
enum status pick_body_buffer_flush(struct pick_body_buffer *body_buffer,
                                   struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                                   const struct pick_edits *edits, struct error *err)
    __attribute__((warn_unused_result));
void pick_body_buffer_clear(struct pick_body_buffer *body_buffer);

#endif
