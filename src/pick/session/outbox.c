/* A slab's count of what is in use decides when it is freed; its count of what was ever taken, when
 * it is closed and another one begins. */
#include "pick/session/outbox.h"

#include <assert.h>
#include <string.h>

/* What a slab is good for: with a body's chunks, a second block of the arena or none. */
enum { MOST_TAKEN = 24 };

/* A message on its way, and what it holds. */
struct parcel {
    struct pick_slab *slab;
    struct pick_kept *of; /* or NULL */
};

void pick_outbox_init(struct pick_outbox *outbox, struct arena *arena, const struct pick_out *out) {
    *outbox = (struct pick_outbox){.out = *out, .first = {.arena = arena}};
    outbox->slab = &outbox->first;
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static void slab_close(struct pick_slab *slab) {
    slab->closed = true;
    if (slab->n_used == 0 && slab->own) {
        arena_free(slab->arena);
    }
}

void pick_outbox_fini(struct pick_outbox *outbox) {
    slab_close(outbox->slab);
    outbox->slab = NULL;
}

void pick_slab_drop(struct pick_slab *slab) {
    assert(slab->n_used > 0);
    slab->n_used--;
    if (slab->n_used == 0 && slab->closed && slab->own) {
        arena_free(slab->arena);
    }
}

static struct pick_slab *slab_new(void) {
    struct arena *arena = arena_new(NULL, 0);
    struct pick_slab *slab = arena ? arena_alloc(arena, sizeof(*slab)) : NULL;
    if (slab) {
        *slab = (struct pick_slab){.arena = arena, .own = true};
    } else {
        arena_free(arena);
    }
    return slab;
}

/* The slab for the next thing, in which it counts already. Returns: NULL when out of memory. */
static struct pick_slab *slab_use(struct pick_outbox *outbox) {
    if (outbox->slab->n_taken >= MOST_TAKEN) {
        struct pick_slab *next = slab_new();
        if (!next) {
            return NULL;
        }
        slab_close(outbox->slab);
        outbox->slab = next;
    }
    outbox->slab->n_taken++;
    outbox->slab->n_used++;
    return outbox->slab;
}

void *pick_outbox_take(struct pick_outbox *outbox, size_t n_bytes, struct pick_slab **slab) {
    *slab = slab_use(outbox);
    void *taken = *slab ? arena_alloc((*slab)->arena, n_bytes) : NULL;
    if (*slab && !taken) {
        pick_slab_drop(*slab);
    }
    return taken;
}

/* ---- messages that came ---------------------------------------------------------------------- */

struct pick_kept *pick_keep(struct pick_outbox *outbox, const struct pick_message *message) {
    struct pick_slab *slab;
    struct pick_kept *kept = pick_outbox_take(outbox, sizeof(*kept), &slab);
    if (kept) {
        *kept = (struct pick_kept){.message = *message, .slab = slab, .n_users = 1};
    }
    return kept;
}

struct pick_kept *pick_copy(struct pick_outbox *outbox, struct str bytes) {
    struct pick_slab *slab;
    struct pick_kept *kept = pick_outbox_take(outbox, sizeof(*kept) + bytes.len, &slab);
    if (kept) {
        char *copy = (char *)(kept + 1);
        if (bytes.len > 0) {
            memcpy(copy, bytes.ptr, bytes.len);
        }
        *kept = (struct pick_kept){
            .message = {.data = str_make(copy, bytes.len)}, .slab = slab, .n_users = 1};
    }
    return kept;
}

void pick_let_go(struct pick_kept *kept) {
    assert(kept->n_users > 0);
    kept->n_users--;
    if (kept->n_users == 0) {
        if (kept->message.release) {
            kept->message.release(kept->message.cookie);
        }
        pick_slab_drop(kept->slab);
    }
}

/* ---- messages that leave --------------------------------------------------------------------- */

static void parcel_left(void *cookie) {
    struct parcel *parcel = cookie;
    if (parcel->of) {
        pick_let_go(parcel->of);
    }
    pick_slab_drop(parcel->slab);
}

/* What lies in the session's arena and borrows nothing needs no word when it has left. */
static void post(struct pick_outbox *outbox, const struct ext_proc_bytes *bytes,
                 struct parcel *parcel) {
    assert(!outbox->finished);
    if (!parcel->slab->own && !parcel->of) {
        pick_slab_drop(parcel->slab);
        outbox->out.send(outbox->out.user, bytes->pieces, bytes->n_pieces, NULL, NULL);
        return;
    }
    if (parcel->of) {
        parcel->of->n_users++;
    }
    outbox->out.send(outbox->out.user, bytes->pieces, bytes->n_pieces, parcel_left, parcel);
}

static struct parcel *parcel_new(struct pick_outbox *outbox, struct pick_kept *of,
                                 struct error *err) {
    struct pick_slab *slab;
    struct parcel *parcel = pick_outbox_take(outbox, sizeof(*parcel), &slab);
    if (parcel) {
        *parcel = (struct parcel){.slab = slab, .of = of};
    } else {
        error_set(err, ST_NO_MEMORY, "no memory for an answer to the proxy");
    }
    return parcel;
}

enum status pick_outbox_answer(struct pick_outbox *outbox, const struct ext_proc_answer *answer,
                               struct pick_kept *of, struct error *err) {
    struct ext_proc_bytes bytes;
    struct parcel *parcel = parcel_new(outbox, of, err);
    if (!parcel) {
        return ST_NO_MEMORY;
    }
    enum status st = ext_proc_answer_encode(parcel->slab->arena, answer, &bytes, err);
    if (st == ST_OK) {
        post(outbox, &bytes, parcel);
    } else {
        pick_slab_drop(parcel->slab);
    }
    return st;
}

enum status pick_outbox_immediate(struct pick_outbox *outbox,
                                  const struct ext_proc_immediate *answer, struct error *err) {
    struct ext_proc_bytes bytes;
    struct parcel *parcel = parcel_new(outbox, NULL, err);
    if (!parcel) {
        return ST_NO_MEMORY;
    }
    enum status st = ext_proc_immediate_encode(parcel->slab->arena, answer, &bytes, err);
    if (st == ST_OK) {
        post(outbox, &bytes, parcel);
    } else {
        pick_slab_drop(parcel->slab);
    }
    return st;
}

void pick_outbox_finish(struct pick_outbox *outbox, const struct error *err) {
    if (!outbox->finished) {
        outbox->finished = true;
        outbox->out.finish(outbox->out.user, err);
    }
}
