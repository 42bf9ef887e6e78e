/* A chunk of a packet: consecutive elements of its batch, of equal shapes, that run as one call of
 * the model. Elements are added one by one, the call runs, and the outputs are written element by
 * element. A chunk has its own arena.
 *
 * Thread: the packet's worker. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_CHUNK_H
#define SLUICE_SERVE_FRONTEND_MIP_CHUNK_H

#include "serve/frontend/client_inference.h"
#include "serve/frontend/mip/answer.h"
#include "serve/frontend/mip/plan.h"
#include "serve/picture/picture.h"

/* For inference_refuse_decoupled. */
#define MIP_CARRIES_ONE "an inference over MIP carries one"

/* No item of a smaller packet takes HELPER_MIN_NS. */
enum { MIP_LARGE_BYTES = 131072 };

struct mip_chunk;

/* What the chunks of a packet share. */
struct mip_chunk_context {
    struct worker *worker;
    struct memory_account *account; /* of the connection */
    struct model_version *version;  /* referenced until the packet ends */
    const struct mip_plan *plan;
    const struct mip_infer *infer;             /* n_inputs was checked against the plan */
    const struct inference_services *services; /* each chunk is one traced request */
    struct pictures *pictures;                 /* NULL: pictures cannot be decoded */
    bool is_large;         /* the packet: helper threads may allocate in the arenas of its chunks */
    atomic_bool cancelled; /* for helper threads */
    /* A picture was decoded, or the model has responded. Possibly called before mip_chunk_submit or
     * mip_chunk_cancel returns. */
    void (*progressed)(struct mip_chunk *chunk);
};

/* Changed by chunk_set_state only. */
enum mip_chunk_state {
    MIP_CHUNK_FILLING,  /* accepts elements; their pictures are being decoded already */
    MIP_CHUNK_CLOSED,   /* accepts no more; waits for its pictures, or to be submitted */
    MIP_CHUNK_RUNNING,  /* the inference is in flight */
    MIP_CHUNK_ANSWERED, /* has `error`, or outputs to be written */
};

struct mip_chunk_input {
    struct shape shape; /* of an element; set by the first one */
    struct piece *pieces;
    size_t n_pieces, cap_pieces;
    size_t n_bytes;
    char *slots; /* decoded pictures, one after the other */
    size_t n_slots, n_used;
};

/* A picture of the chunk, being decoded or done. */
struct mip_chunk_picture {
    struct picture_job job;
    struct mip_chunk *chunk;
    struct mip_chunk_picture *next;
    size_t element, input;
    bool done;
};

/* Lives in its own arena. */
struct mip_chunk {
    struct client_inference inference;
    struct mip_chunk_context *context;
    enum mip_chunk_state state;
    struct arena *arena;
    size_t first;    /* index of its first element in the packet's batch */
    size_t n;        /* elements added */
    size_t capacity; /* most elements */
    struct mip_chunk_input *inputs;
    struct tensor *element_tensor; /* the element being added: one tensor per input */
    struct mip_chunk_picture *pictures;
    size_t n_decoding;
    struct error error; /* of a picture, the request or the model */
    struct mip_rows *rows;
    size_t n_written;
};

/* Creates a chunk that begins with the element `first`, of at most `capacity` elements and about
 * `memory_bytes`. Returns: NULL when out of memory. */
struct mip_chunk *mip_chunk_new(struct mip_chunk_context *context, size_t first, size_t capacity,
                                size_t memory_bytes);
/* Returns: the estimated time of mip_chunk_read_element, in ns. */
uint64_t mip_chunk_read_ns(const struct mip_chunk *chunk);
/* Reads the items of the next element of the batch. Returns: the error of an item; ST_NO_MEMORY,
 * and the earlier elements stay valid. Thread: any, which alone uses the chunk. */
enum status mip_chunk_read_element(struct mip_chunk *chunk, struct error *err) SLUICE_MUST_USE;
/* Adds the element that was read. *taken is false when its shapes differ from the earlier
 * elements': it is for the next chunk. Returns: ST_NO_MEMORY, and the earlier elements stay
 * valid. */
enum status mip_chunk_add_element(struct mip_chunk *chunk, bool *taken,
                                  struct error *err) SLUICE_MUST_USE;
/* Closes the chunk: no more elements. */
void mip_chunk_close(struct mip_chunk *chunk);
/* Is the chunk closed, and are all its pictures decoded? */
bool mip_chunk_is_ready(const struct mip_chunk *chunk);
/* Submits a ready chunk to the model. It is answered, also when it was refused, possibly before
 * this returns. */
void mip_chunk_submit(struct mip_chunk *chunk);
/* Prepares an answered chunk for mip_chunk_write. Returns: ST_BAD_OUTPUT, ST_NO_MEMORY. */
enum status mip_chunk_begin_write(struct mip_chunk *chunk, struct error *err) SLUICE_MUST_USE;
/* Returns: the estimated time of mip_chunk_write, in ns. */
uint64_t mip_chunk_write_ns(const struct mip_chunk *chunk);
/* Appends the outputs of the next element to the answer. `may_view`: the chunk is freed after the
 * answer is sent; `scratch` holds temporary memory. Returns: ST_BAD_OUTPUT, ST_NO_MEMORY. Thread:
 * any, which alone uses the chunk, the writer and `scratch`. */
enum status mip_chunk_write(struct mip_chunk *chunk, struct mip_answer_writer *writer,
                            bool may_view, struct arena *scratch,
                            struct error *err) SLUICE_MUST_USE;

/* Cancels the pictures and the call that are in flight. */
void mip_chunk_cancel(struct mip_chunk *chunk);
/* Is no picture being decoded, and no call in flight? */
bool mip_chunk_is_idle(const struct mip_chunk *chunk);
/* Frees the chunk and its outputs. It must be idle. */
void mip_chunk_free(struct mip_chunk *chunk);

#endif
