/* Parts stay as they came: what leaves is cut along their borders, so that a gRPC message stays
 * one. */
#include "pick/session/held.h"

#include <inttypes.h>

#include "core/base/metric/metric.h"

struct pick_held_part {
    struct pick_part part;
    struct pick_slab *slab;
    struct pick_held_part *next;
};

enum {
    /* What a part costs us whatever its length: empty ones may not be sent for ever. */
    COST_OF_PART = 512,
    FREE_PARTS = 1024,
    /* A message is of some KiB, whatever is in it. */
    SMALL_BYTES = 4096,
    PARTS_AS_THEY_ARE = 8,
};

struct pick_part pick_part_of(const struct ext_proc_request *message, struct pick_kept *of) {
    return (struct pick_part){.bytes = message->body,
                              .end = message->end_of_stream,
                              .end_without_message = message->end_without_message,
                              .is_compressed = message->is_compressed,
                              .of = of};
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static size_t add_piece(struct piece out[PICK_MOST_PIECES], size_t n, struct str bytes) {
    if (bytes.len > 0) {
        out[n++] = (struct piece){bytes.ptr, bytes.len};
    }
    return n;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high) {
    return value < low ? low : value > high ? high : value;
}

size_t pick_part_pieces(const struct pick_part *part, uint64_t at, const struct pick_edits *edits,
                        struct piece out[PICK_MOST_PIECES]) {
    uint64_t done = at, end = at + part->bytes.len;
    size_t n = 0;
    for (size_t i = 0; edits && i < edits->n; i++) {
        const struct pick_edit *edit = &edits->items[i];
        uint64_t from = clamp(edit->at, done, end);
        uint64_t to = clamp(edit->at + edit->n_bytes, done, end);
        n = add_piece(out, n, str_make(part->bytes.ptr + (done - at), (size_t)(from - done)));
        if (edit->at >= at && edit->at < end) { /* it begins here */
            n = add_piece(out, n, edit->with);
        }
        done = to;
    }
    return add_piece(out, n, str_make(part->bytes.ptr + (done - at), (size_t)(end - done)));
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Takes at most `most` bytes off the front of `from`. Returns: how many pieces they are. */
static size_t cut_chunk(struct piece **from, size_t *n_from, size_t most,
                        struct piece out[PICK_MOST_PIECES]) {
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

enum status pick_part_send(struct pick_outbox *outbox, enum ext_proc_kind kind,
                           const struct pick_part *part, uint64_t at,
                           const struct pick_edits *edits, bool whole, struct error *err) {
    struct piece pieces[PICK_MOST_PIECES], chunk[PICK_MOST_PIECES], *left = pieces;
    size_t n_left = pick_part_pieces(part, at, edits, pieces);
    enum status st = ST_OK;
    if (n_left == 0 && !part->end && !whole) {
        return ST_OK; /* nothing is left of it */
    }
    do {
        size_t n = cut_chunk(&left, &n_left, whole ? SIZE_MAX : EXT_PROC_MOST_CHUNK_BYTES, chunk);
        struct ext_proc_answer answer = {.kind = kind,
                                         .body_change = EXT_PROC_BODY_SENT,
                                         .body = chunk,
                                         .n_body = n,
                                         .end_of_stream = part->end && n_left == 0,
                                         .end_without_message = part->end_without_message,
                                         .is_compressed = part->is_compressed};
        st = pick_outbox_answer(outbox, &answer, n > 0 ? part->of : NULL, err);
    } while (st == ST_OK && n_left > 0);
    return st;
}

/* ---- what is held ---------------------------------------------------------------------------- */

void pick_held_init(struct pick_held *held, uint64_t max_bytes) {
    *held = (struct pick_held){.max_bytes = max_bytes};
    held->end = &held->first;
}

enum status pick_held_check(const struct pick_held *held, struct error *err) {
    uint64_t cost = held->n_parts > FREE_PARTS ? (held->n_parts - FREE_PARTS) * COST_OF_PART : 0;
    if (held->n_bytes <= held->max_bytes && cost <= held->max_bytes) {
        return ST_OK;
    }
    return error_set(err, ST_BODY_TOO_LARGE,
                     "the model must be named within the first %" PRIu64
                     " bytes of the body (--max-body-size), which has %" PRIu64 " in %zu pieces so "
                     "far",
                     held->max_bytes, held->n_bytes, held->n_parts);
}

bool pick_held_copies(const struct pick_held *held, size_t n_bytes) {
    return n_bytes <= SMALL_BYTES && held->n_parts >= PARTS_AS_THEY_ARE;
}

enum status pick_held_add(struct pick_held *held, struct pick_outbox *outbox,
                          const struct pick_part *part, struct error *err) {
    bool copied = pick_held_copies(held, part->bytes.len);
    struct pick_kept *of = copied ? pick_copy(outbox, part->bytes) : part->of;
    struct pick_slab *slab;
    struct pick_held_part *added;
    held->n_bytes += part->bytes.len;
    held->n_parts++;
    metric_add(METRIC_PICK_HELD_BYTES, (int64_t)part->bytes.len);
    added = of ? pick_outbox_take(outbox, sizeof(*added), &slab) : NULL;
    if (!added) {
        if (of && copied) {
            pick_let_go(of);
        }
        return error_set(err, ST_NO_MEMORY, "no memory for another piece of the body");
    }
    *added = (struct pick_held_part){.part = *part, .slab = slab};
    added->part.of = of;
    if (copied) { /* its first user is the part */
        added->part.bytes = of->message.data;
    } else {
        of->n_users++;
    }
    *held->end = added;
    held->end = &added->next;
    return ST_OK;
}

static void drop_first(struct pick_held *held) {
    struct pick_held_part *first = held->first;
    held->first = first->next;
    pick_let_go(first->part.of);
    pick_slab_drop(first->slab);
}

enum status pick_held_send(struct pick_held *held, struct pick_outbox *outbox,
                           enum ext_proc_kind kind, const struct pick_edits *edits,
                           struct error *err) {
    uint64_t at = 0;
    enum status st = ST_OK;
    while (held->first && st == ST_OK) {
        st = pick_part_send(outbox, kind, &held->first->part, at, edits, false, err);
        at += held->first->part.bytes.len;
        drop_first(held);
    }
    pick_held_drop(held);
    return st;
}

void pick_held_drop(struct pick_held *held) {
    if (held->n_parts == 0) {
        return;
    }
    while (held->first) {
        drop_first(held);
    }
    metric_add(METRIC_PICK_HELD_BYTES, -(int64_t)held->n_bytes);
    pick_held_init(held, held->max_bytes);
}
