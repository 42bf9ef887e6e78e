/* A part of a packet: consecutive elements of its batch, of equal shapes, that run as one call of
 * the model. It is filled element by element, called, and written out element by element; its
 * memory is its own and goes when it ends.
 *
 * Thread: the packet's worker. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_CHUNK_H
#define SLUICE_SERVE_FRONTEND_MIP_CHUNK_H

#include "codec/kserve/request.h"
#include "serve/frontend/mip/answer.h"
#include "serve/frontend/mip/plan.h"
#include "serve/picture/picture.h"
#include "serve/scheduler/call.h"
#include "serve/trace/trace.h"

struct mip_chunk;

/* What the parts of a packet share. */
struct mip_chunk_context {
    struct worker *worker;
    struct model_version *version; /* referenced until the packet ends */
    const struct mip_plan *plan;
    const struct mip_infer *infer; /* n_inputs is one that fits the plan */
    const struct json_limits *limits;
    struct pictures *pictures; /* NULL: none can be decoded */
    struct tracer *tracer;     /* each part is a request to it; NULL: none is traced */
    /* A picture came, or the model's answer. May run before mip_chunk_submit or mip_chunk_cancel
     * returns. */
    void (*progressed)(struct mip_chunk *chunk);
};

/* chunk_set_state is the only one that changes it. */
enum mip_chunk_state {
    MIP_CHUNK_FILLING,  /* takes elements; their pictures are being decoded already */
    MIP_CHUNK_CLOSED,   /* takes no more; waits for its pictures, or to be submitted */
    MIP_CHUNK_RUNNING,  /* with the model */
    MIP_CHUNK_ANSWERED, /* `error` or outputs, to be written */
};

struct mip_chunk_input {
    struct shape shape; /* of an element, once there is one */
    struct piece *pieces;
    size_t n_pieces, cap_pieces;
    size_t n_bytes;
    char *slots; /* where decoded pictures go, one behind the other */
    size_t n_slots, n_used;
};

/* A picture of the part, on its way or there. */
struct mip_chunk_picture {
    struct picture_job job;
    struct mip_chunk *chunk;
    struct mip_chunk_picture *next;
    size_t element, input;
    bool done;
};

/* Lives in its own arena. */
struct mip_chunk {
    struct call call;
    struct infer_request request;
    struct mip_chunk_context *context;
    enum mip_chunk_state state;
    struct arena *arena;
    size_t first;    /* element of the packet's batch that it begins with */
    size_t n;        /* elements it has */
    size_t capacity; /* elements it may have */
    struct mip_chunk_input *inputs;
    struct tensor *element_tensor; /* the element being taken: one tensor per input */
    struct mip_chunk_picture *pictures;
    size_t n_decoding;
    struct trace *trace;
    struct error error; /* of a picture or the model */
    struct mip_rows *rows;
    size_t n_written;
};

/* Makes a part that begins with the element `first`, of at most `capacity` elements and (about)
 * `memory_bytes`. Returns: NULL when there is no memory. */
struct mip_chunk *mip_chunk_new(struct mip_chunk_context *context, size_t first, size_t capacity,
                                size_t memory_bytes);
/* Takes the next element of the batch. It is not taken, and still to be done, when its shapes are
 * not those of the elements before it (`taken` false). Returns: what is wrong with an item;
 * ST_NO_MEMORY, and what was taken before stays good. */
enum status mip_chunk_add_element(struct mip_chunk *chunk, bool *taken, struct error *err)
    __attribute__((warn_unused_result));
/* No more elements. */
void mip_chunk_close(struct mip_chunk *chunk);
/* Closed, and all pictures are there? */
bool mip_chunk_is_ready(const struct mip_chunk *chunk);
/* Hands a ready part to the model. Returns: why the model can't take it, and then it is still
 * closed. */
enum status mip_chunk_submit(struct mip_chunk *chunk, struct error *err)
    __attribute__((warn_unused_result));
/* Appends the outputs of the next element to the answer; `more`: there are further ones.
 * `may_view`: the part is freed after the answer is sent. Returns: ST_BAD_OUTPUT, ST_NO_MEMORY. */
enum status mip_chunk_write(struct mip_chunk *chunk, struct mip_answer_writer *writer,
                            bool may_view, bool *more, struct error *err)
    __attribute__((warn_unused_result));

/* Nobody waits for it any more: what can be stopped is stopped. */
void mip_chunk_cancel(struct mip_chunk *chunk);
/* Does nobody else use it: no picture is being decoded, the model does not have it? */
bool mip_chunk_is_idle(const struct mip_chunk *chunk);
/* Gives everything back, the answer's outputs too; a quiet part only. */
void mip_chunk_free(struct mip_chunk *chunk);

#endif
