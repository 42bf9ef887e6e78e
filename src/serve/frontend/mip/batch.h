/* The batch of a packet: it is cut into chunks that the model can run at once. A few chunks run at
 * a time, and their outputs are written into one answer in the order of the elements. Items are
 * read when their chunk begins, so that a packet needs the memory of its window of chunks and of
 * its answer.
 *
 * A failure fails the whole packet: running chunks are cancelled, and waited for. A long batch
 * yields to the worker's other connections after STEP_BUDGET_NS; a large element is read and
 * written on a helper thread.
 *
 * Thread: the packet's worker. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_BATCH_H
#define SLUICE_SERVE_FRONTEND_MIP_BATCH_H

#include "serve/frontend/mip/chunk.h"

/* Chunks in the window: enough that the model does not wait for the next one to be read, few enough
 * that one packet does not fill the model's queue. */
enum { MIP_BATCH_CHUNKS = 4 };

/* What helper threads use; lives in its own arena. */
struct mip_batch_helper {
    struct helper_job job;
    struct mip_batch *batch;
    struct arena *arena; /* of all that they write */
    struct mip_answer_writer part;
    struct error error; /* of the job */
};

/* What a batch does. Steps begin in MIP_BATCH_IDLE only. */
enum mip_batch_state {
    MIP_BATCH_IDLE,      /* waits for its chunks, or was not started */
    MIP_BATCH_STEPPING,  /* runs steps, on this stack */
    MIP_BATCH_POSTED,    /* the message that continues is on its way */
    MIP_BATCH_ON_HELPER, /* an element is read or written on a helper thread */
    MIP_BATCH_FINISHED,  /* `done` was called */
};

struct mip_batch {
    /* set by the caller, the rest zeroed; context.progressed is set by mip_batch_start */
    struct mip_chunk_context context;
    struct arena *arena;   /* of the answer */
    uint64_t memory_bytes; /* limit of answer and chunks (--request-memory) */
    /* Called exactly once; possibly before mip_batch_start or mip_batch_cancel returns. */
    void (*done)(struct mip_batch *batch);

    /* the result, for `done` */
    struct error error;         /* ST_OK: the answer packet is in `pieces`, */
    const struct piece *pieces; /* which are valid until mip_batch_fini */
    size_t n_pieces;

    /* internal */
    struct mip_chunk *chunks[MIP_BATCH_CHUNKS]; /* ring: n_chunks from `oldest` on */
    size_t oldest, n_chunks;
    size_t n_taken; /* elements taken into chunks so far */
    struct mip_answer_writer writer;
    enum mip_batch_state state;
    struct worker_msg msg;           /* continues in the next event-loop iteration */
    struct mip_batch_helper *helper; /* NULL: no element was large */
    bool short_of_memory;            /* no new chunk before one has ended */
};

/* Returns: bytes of the answer's memory. */
static inline uint64_t mip_batch_answer_bytes(const struct mip_batch *batch) {
    return arena_bytes(batch->arena) + (batch->helper ? arena_bytes(batch->helper->arena) : 0);
}

void mip_batch_start(struct mip_batch *batch);
/* Cancels the batch: it ends with ST_CANCELLED when all chunks are idle. No effect after `done`. */
void mip_batch_cancel(struct mip_batch *batch);
/* Frees the chunks. Call it exactly once after `done`, when the answer was sent or is not needed.
 */
void mip_batch_fini(struct mip_batch *batch);

#endif
