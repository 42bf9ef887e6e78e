/* A body that comes in messages and leaves in messages, without being copied: first held, until
 * its model is known, then sent on, with the model's value replaced where it has to be. */
#ifndef SLUICE_PICK_SESSION_HELD_H
#define SLUICE_PICK_SESSION_HELD_H

#include "pick/session/outbox.h"
#include "pick/session/scan.h"

/* One message's part of it. */
struct pick_part {
    struct str bytes;
    bool end, end_without_message, is_compressed;
    struct pick_kept *of; /* whose bytes they are */
};

struct pick_part pick_part_of(const struct ext_proc_request *message, struct pick_kept *of);

/* The pieces of a part that begins at `at` of its body, with the edits that are in it; ones that
 * reach over several parts, too. Returns: how many. */
enum { PICK_MOST_PIECES = 5 };
size_t pick_part_pieces(const struct pick_part *part, uint64_t at, const struct pick_edits *edits,
                        struct piece out[PICK_MOST_PIECES]);

/* Sends a part on, in a duplex mode: in chunks of at most EXT_PROC_MOST_CHUNK_BYTES, of which the
 * last has the end; with `whole` (mode GRPC, where it is a message) in one. `edits` may be NULL.
 * Returns: as pick_outbox_answer. */
enum status pick_part_send(struct pick_outbox *outbox, enum ext_proc_kind kind,
                           const struct pick_part *part, uint64_t at,
                           const struct pick_edits *edits, bool whole, struct error *err)
    __attribute__((warn_unused_result));

struct pick_held_part;

struct pick_held {
    struct pick_held_part *first, **end;
    uint64_t n_bytes;
    size_t n_parts;
    uint64_t max_bytes;
};

void pick_held_init(struct pick_held *held, uint64_t max_bytes);
/* Is it too much to go on holding it? Returns: ST_BODY_TOO_LARGE. */
enum status pick_held_check(const struct pick_held *held, struct error *err)
    __attribute__((warn_unused_result));
/* Will a part of so many bytes be copied? Small ones are, behind the first few: what a message
 * costs besides its bytes is more. */
bool pick_held_copies(const struct pick_held *held, size_t n_bytes);
/* Adds a part, whose message it uses from now on, unless it copies it: then `of` may be NULL.
 * Returns: ST_NO_MEMORY. */
enum status pick_held_add(struct pick_held *held, struct pick_outbox *outbox,
                          const struct pick_part *part, struct error *err)
    __attribute__((warn_unused_result));
/* Sends all of it on and lets go of it. Returns: as pick_outbox_answer. */
enum status pick_held_send(struct pick_held *held, struct pick_outbox *outbox,
                           enum ext_proc_kind kind, const struct pick_edits *edits,
                           struct error *err) __attribute__((warn_unused_result));
void pick_held_drop(struct pick_held *held);

#endif
