/* The send queue: the responses of a session and their memory. A stream can live as long as a model
 * generates tokens, so responses must not accumulate in its arena. The first ones are allocated
 * there, later ones in slabs, each of which is freed when its last response was sent: a short
 * stream allocates nothing, an endless one a bounded amount.
 *
 * It also counts the references to received messages, whose bytes are sent on without a copy. Back
 * pressure: the queue itself has no limit; the caller stops reading the proxy's messages while too
 * many bytes are unsent (MAX_QUEUED_BYTES in pick/ext_proc/service.c). */
#ifndef SLUICE_PICK_SESSION_SEND_QUEUE_H
#define SLUICE_PICK_SESSION_SEND_QUEUE_H

#include "codec/ext_proc/response.h"
#include "pick/session/session.h"

/* What a received message occupies besides its bytes. */
enum { PICK_MESSAGE_OVERHEAD_BYTES = 4096 + 256 };

/* Memory for some responses and message references. */
struct pick_slab {
    struct arena *arena;
    uint32_t n_allocated; /* allocations so far */
    uint32_t n_used;      /* allocations not released yet */
    bool owns_arena;      /* it has its own arena, which also contains this struct */
    bool closed;          /* no more allocations */
};

/* A received message whose bytes are still used. */
struct pick_message_ref {
    struct pick_message message;
    struct pick_slab *slab;
    uint32_t n_refs;
};

struct pick_send_queue {
    struct pick_callbacks callbacks;
    struct pick_slab first;                    /* in the session's arena */
    struct pick_slab *slab;                    /* for the next allocation */
    const struct ext_proc_namespace *metadata; /* of the next response without its own; in
                                                  the session's arena */
    size_t n_metadata;
    bool finished;
};

void pick_send_queue_init(struct pick_send_queue *send_queue, struct arena *arena,
                          const struct pick_callbacks *callbacks);
/* Closes the queue; messages that were passed to `send` stay valid until they are released. */
void pick_send_queue_fini(struct pick_send_queue *send_queue);

/* Memory for something that lives no longer than some responses do, until pick_slab_unref. Returns:
 * NULL when out of memory. */
void *pick_send_queue_alloc(struct pick_send_queue *send_queue, size_t n_bytes,
                            struct pick_slab **slab);
void pick_slab_unref(struct pick_slab *slab);

/* A reference to a copy of the bytes: for small parts of a message that occupies more. Returns:
 * NULL when out of memory. */
struct pick_message_ref *pick_message_ref_copy(struct pick_send_queue *send_queue,
                                               struct str bytes);
/* Takes over the message, with one reference, the caller's; the last pick_message_unref releases
 * it. Returns: NULL when out of memory: the message is still the caller's. */
struct pick_message_ref *pick_message_ref_new(struct pick_send_queue *send_queue,
                                              const struct pick_message *message);
void pick_message_unref(struct pick_message_ref *message_ref);

/* Sends a response. `ref`: the message that answer->body points into, or NULL. Returns:
 * ST_NO_MEMORY, ST_BAD_OUTPUT; nothing was sent. */
enum status pick_send_queue_push(struct pick_send_queue *send_queue,
                                 const struct ext_proc_response *answer,
                                 struct pick_message_ref *ref, struct error *err) SLUICE_MUST_USE;
/* The same; `edits`, which may be NULL, are passed to the `respond` callback. */
enum status pick_send_queue_push_edited(struct pick_send_queue *send_queue,
                                        const struct ext_proc_response *answer,
                                        struct pick_message_ref *ref,
                                        const struct pick_edits *edits,
                                        struct error *err) SLUICE_MUST_USE;
enum status pick_send_queue_push_immediate(struct pick_send_queue *send_queue,
                                           const struct ext_proc_immediate *answer,
                                           struct error *err) SLUICE_MUST_USE;
/* Ends the stream, the first time that it is called. */
void pick_send_queue_finish(struct pick_send_queue *send_queue, const struct error *err);

#endif
