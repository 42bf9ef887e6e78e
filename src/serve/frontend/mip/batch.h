/* A packet's batch on its way: cut into parts that the model can take at once, a few of them under
 * way at a time, and written into one answer in the order of the elements. Items are read when
 * their part begins, so a packet holds the memory of its window of parts, its answer, and no
 * more.
 *
 * Where something fails the whole packet does: parts under way are cancelled and waited for. A long
 * batch gives the worker's other connections their turn.
 *
 * Thread: the packet's worker. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_BATCH_H
#define SLUICE_SERVE_FRONTEND_MIP_BATCH_H

#include "serve/frontend/mip/chunk.h"

/* Parts under way: enough that the model need not wait for the next to be read, few enough that one
 * packet does not fill the model's queue. */
enum { MIP_BATCH_CHUNKS = 4 };

struct mip_batch {
    /* set by the caller, besides zeroes; source.moved is the batch's own */
    struct mip_chunk_context context;
    struct arena *arena;   /* the answer's */
    uint64_t memory_bytes; /* of answer and parts (--request-memory) */
    /* Exactly once; may run before mip_batch_start or mip_batch_cancel returns. */
    void (*done)(struct mip_batch *batch);

    /* filled for `done` */
    struct error error;         /* status ST_OK: the packet that answers is in the */
    const struct piece *pieces; /* pieces, which stay until mip_batch_fini */
    size_t n_pieces;

    /* the batch's own */
    struct mip_chunk *chunks[MIP_BATCH_CHUNKS]; /* those under way are n_parts from `oldest` on */
    size_t oldest, n_chunks;
    size_t n_taken; /* elements that are in parts, or were */
    struct mip_answer_writer writer;
    struct worker_msg msg; /* for the next turn */
    bool posted;           /* the message is on its way */
    bool stepping;         /* no second time meanwhile */
    bool short_of_memory;  /* no new part before one has ended */
    bool finished;         /* `done` was called */
};

void mip_batch_start(struct mip_batch *batch);
/* Nobody waits any more: ends with ST_CANCELLED as soon as everything is back. Nothing happens
 * after `done`. */
void mip_batch_cancel(struct mip_batch *batch);
/* After `done`, exactly once: the answer was sent, or will not be. */
void mip_batch_fini(struct mip_batch *batch);

#endif
