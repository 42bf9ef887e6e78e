/* What a session says, and the memory of it. A stream may live for as long as a model talks, so
 * answers must not pile up in its arena: the first ones lie there, later ones in slabs of their
 * own, each of which is freed when the last answer in it has left. So a short stream costs no
 * memory of its own, and an endless one a bounded amount.
 *
 * It also counts who still wants the bytes of a message that came: those are sent on without being
 * copied. */
#ifndef SLUICE_PICK_SESSION_SEND_QUEUE_H
#define SLUICE_PICK_SESSION_SEND_QUEUE_H

#include "codec/ext_proc/response.h"
#include "pick/session/session.h"

/* Memory of some answers and of what is known of messages. */
struct pick_slab {
    struct arena *arena;
    uint32_t n_allocated; /* how many things were ever put into it */
    uint32_t n_used;      /* how many of them are still in use */
    bool owns_arena;      /* it has an arena of its own, in which it lies itself */
    bool closed;          /* nothing more comes */
};

/* A message of the proxy's of which somebody still wants bytes. */
struct pick_message_ref {
    struct pick_message message;
    struct pick_slab *slab;
    uint32_t n_refs;
};

struct pick_send_queue {
    struct pick_callbacks callbacks;
    struct pick_slab first; /* in the session's arena */
    struct pick_slab *slab; /* where the next things go */
    bool finished;
};

void pick_send_queue_init(struct pick_send_queue *send_queue, struct arena *arena,
                          const struct pick_callbacks *callbacks);
/* Nothing more is sent; what is on its way stays until it has left. */
void pick_send_queue_fini(struct pick_send_queue *send_queue);

/* Memory for what lives no longer than some answers do; until pick_outbox_drop with the slab that
 * it is of. Returns: NULL when out of memory. */
void *pick_send_queue_alloc(struct pick_send_queue *send_queue, size_t n_bytes,
                            struct pick_slab **slab);
void pick_slab_unref(struct pick_slab *slab);

/* A copy of some bytes, as if it were such a message: for few of a message that costs more.
 * Returns: NULL when out of memory. */
struct pick_message_ref *pick_message_ref_copy(struct pick_send_queue *send_queue,
                                               struct str bytes);
/* Its bytes stay until it is let go of as often as it was taken; the first time is the caller's.
 * Returns: NULL when out of memory: the message is still the caller's. */
struct pick_message_ref *pick_message_ref_new(struct pick_send_queue *send_queue,
                                              const struct pick_message *message);
void pick_message_unref(struct pick_message_ref *message_ref);

/* Sends. `of`: the message whose bytes answer->body are, or NULL. Returns: ST_NO_MEMORY,
 * ST_BAD_OUTPUT; nothing was sent. */
enum status pick_send_queue_push(struct pick_send_queue *send_queue,
                                 const struct ext_proc_response *answer,
                                 struct pick_message_ref *ref, struct error *err)
    __attribute__((warn_unused_result));
enum status pick_send_queue_push_immediate(struct pick_send_queue *send_queue,
                                           const struct ext_proc_immediate *answer,
                                           struct error *err) __attribute__((warn_unused_result));
/* Ends the stream, the first time it is called. */
void pick_send_queue_finish(struct pick_send_queue *send_queue, const struct error *err);

#endif
