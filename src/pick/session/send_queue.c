/* A slab is freed when all its allocations are released, and takes no more after MAX_ALLOCATED. */
#include "pick/session/send_queue.h"

#include <assert.h>
#include <string.h>

/* Allocations per slab. With a body's chunks they fit into the arena's first block and at most one
 * more. */
enum { MAX_ALLOCATED = 24 };

/* A message that was passed to `send`, and the reference that it holds. */
struct queued_message {
    struct pick_slab *slab;
    struct pick_message_ref *ref; /* or NULL */
};

void pick_send_queue_init(struct pick_send_queue *send_queue, struct arena *arena,
                          const struct pick_callbacks *callbacks) {
    *send_queue = (struct pick_send_queue){.callbacks = *callbacks, .first = {.arena = arena}};
    send_queue->slab = &send_queue->first;
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static void slab_close(struct pick_slab *slab) {
    slab->closed = true;
    if (slab->n_used == 0 && slab->owns_arena) {
        arena_free(slab->arena);
    }
}

void pick_send_queue_fini(struct pick_send_queue *send_queue) {
    slab_close(send_queue->slab);
    send_queue->slab = NULL;
}

void pick_slab_unref(struct pick_slab *slab) {
    assert(slab->n_used > 0);
    slab->n_used--;
    if (slab->n_used == 0 && slab->closed && slab->owns_arena) {
        arena_free(slab->arena);
    }
}

static struct pick_slab *slab_new(void) {
    struct arena *arena = arena_new(NULL, 0);
    struct pick_slab *slab = arena ? arena_alloc(arena, sizeof(*slab)) : NULL;
    if (slab) {
        *slab = (struct pick_slab){.arena = arena, .owns_arena = true};
    } else {
        arena_free(arena);
    }
    return slab;
}

/* Counts an allocation in the current slab, or in a new one. Returns: NULL when out of memory. */
static struct pick_slab *slab_use(struct pick_send_queue *send_queue) {
    if (send_queue->slab->n_allocated >= MAX_ALLOCATED) {
        struct pick_slab *next = slab_new();
        if (!next) {
            return NULL;
        }
        slab_close(send_queue->slab);
        send_queue->slab = next;
    }
    send_queue->slab->n_allocated++;
    send_queue->slab->n_used++;
    return send_queue->slab;
}

void *pick_send_queue_alloc(struct pick_send_queue *send_queue, size_t n_bytes,
                            struct pick_slab **slab) {
    *slab = slab_use(send_queue);
    void *allocated = *slab ? arena_alloc((*slab)->arena, n_bytes) : NULL;
    if (*slab && !allocated) {
        pick_slab_unref(*slab);
    }
    return allocated;
}

/* ---- received messages ----------------------------------------------------------------------- */

struct pick_message_ref *pick_message_ref_new(struct pick_send_queue *send_queue,
                                              const struct pick_message *message) {
    struct pick_slab *slab;
    struct pick_message_ref *message_ref =
        pick_send_queue_alloc(send_queue, sizeof(*message_ref), &slab);
    if (message_ref) {
        *message_ref = (struct pick_message_ref){.message = *message, .slab = slab, .n_refs = 1};
    }
    return message_ref;
}

struct pick_message_ref *pick_message_ref_copy(struct pick_send_queue *send_queue,
                                               struct str bytes) {
    struct pick_slab *slab;
    struct pick_message_ref *message_ref =
        pick_send_queue_alloc(send_queue, sizeof(*message_ref) + bytes.len, &slab);
    if (message_ref) {
        char *copy = (char *)(message_ref + 1);
        if (bytes.len > 0) {
            memcpy(copy, bytes.ptr, bytes.len);
        }
        *message_ref = (struct pick_message_ref){
            .message = {.data = str_make(copy, bytes.len)}, .slab = slab, .n_refs = 1};
    }
    return message_ref;
}

void pick_message_unref(struct pick_message_ref *message_ref) {
    assert(message_ref->n_refs > 0);
    message_ref->n_refs--;
    if (message_ref->n_refs == 0) {
        if (message_ref->message.release) {
            message_ref->message.release(message_ref->message.user);
        }
        pick_slab_unref(message_ref->slab);
    }
}

/* ---- sent messages --------------------------------------------------------------------------- */

static void on_message_sent(void *user) {
    struct queued_message *queued = user;
    if (queued->ref) {
        pick_message_unref(queued->ref);
    }
    pick_slab_unref(queued->slab);
}

/* A message in the session's arena that borrows no bytes needs no release callback. */
static void send_message(struct pick_send_queue *send_queue, const struct ext_proc_message *bytes,
                         struct queued_message *queued) {
    assert(!send_queue->finished);
    if (!queued->slab->owns_arena && !queued->ref) {
        pick_slab_unref(queued->slab);
        send_queue->callbacks.send(send_queue->callbacks.user, bytes->pieces, bytes->n_pieces, NULL,
                                   NULL);
        return;
    }
    if (queued->ref) {
        queued->ref->n_refs++;
    }
    send_queue->callbacks.send(send_queue->callbacks.user, bytes->pieces, bytes->n_pieces,
                               on_message_sent, queued);
}

static struct queued_message *queued_message_new(struct pick_send_queue *send_queue,
                                                 struct pick_message_ref *ref, struct error *err) {
    struct pick_slab *slab;
    struct queued_message *queued = pick_send_queue_alloc(send_queue, sizeof(*queued), &slab);
    if (queued) {
        *queued = (struct queued_message){.slab = slab, .ref = ref};
    } else {
        error_no_memory(err, "a response to the proxy");
    }
    return queued;
}

static enum status encode_and_send(struct pick_send_queue *send_queue,
                                   const struct ext_proc_response *answer,
                                   struct pick_message_ref *ref, struct error *err) {
    struct ext_proc_message bytes;
    struct queued_message *queued = queued_message_new(send_queue, ref, err);
    if (!queued) {
        return ST_NO_MEMORY;
    }
    enum status st = ext_proc_response_encode(queued->slab->arena, answer, &bytes, err);
    if (st == ST_OK) {
        send_message(send_queue, &bytes, queued);
    } else {
        pick_slab_unref(queued->slab);
    }
    return st;
}

enum status pick_send_queue_push_edited(struct pick_send_queue *send_queue,
                                        const struct ext_proc_response *answer,
                                        struct pick_message_ref *ref,
                                        const struct pick_edits *edits, struct error *err) {
    const struct pick_callbacks *out = &send_queue->callbacks;
    struct ext_proc_response with_metadata;
    if (send_queue->n_metadata > 0 && answer->n_metadata == 0) {
        with_metadata = *answer;
        with_metadata.metadata = send_queue->metadata;
        with_metadata.n_metadata = send_queue->n_metadata;
        send_queue->n_metadata = 0;
        answer = &with_metadata;
    }
    if (out->respond) {
        out->respond(out->user, answer, edits);
        return ST_OK;
    }
    return encode_and_send(send_queue, answer, ref, err);
}

enum status pick_send_queue_push(struct pick_send_queue *send_queue,
                                 const struct ext_proc_response *answer,
                                 struct pick_message_ref *ref, struct error *err) {
    return pick_send_queue_push_edited(send_queue, answer, ref, NULL, err);
}

enum status pick_send_queue_push_immediate(struct pick_send_queue *send_queue,
                                           const struct ext_proc_immediate *answer,
                                           struct error *err) {
    const struct pick_callbacks *out = &send_queue->callbacks;
    struct ext_proc_message bytes;
    if (out->respond) {
        out->respond_immediate(out->user, answer);
        return ST_OK;
    }
    struct queued_message *queued = queued_message_new(send_queue, NULL, err);
    if (!queued) {
        return ST_NO_MEMORY;
    }
    enum status st = ext_proc_immediate_encode(queued->slab->arena, answer, &bytes, err);
    if (st == ST_OK) {
        send_message(send_queue, &bytes, queued);
    } else {
        pick_slab_unref(queued->slab);
    }
    return st;
}

void pick_send_queue_finish(struct pick_send_queue *send_queue, const struct error *err) {
    if (!send_queue->finished) {
        send_queue->finished = true;
        send_queue->callbacks.finish(send_queue->callbacks.user, err);
    }
}
