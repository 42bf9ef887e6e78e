/* A part of a packet: consecutive elements of its batch, of equal shapes, that run as one call of
 * the model. It is filled element by element, called, and written out element by element; its
 * memory is its own and goes when it ends.
 *
 * Thread: the packet's worker. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_PART_H
#define SLUICE_SERVE_FRONTEND_MIP_PART_H

#include "codec/kserve/request.h"
#include "serve/frontend/mip/answer.h"
#include "serve/frontend/mip/plan.h"
#include "serve/frontend/mip/rows.h"
#include "serve/picture/picture.h"
#include "serve/scheduler/call.h"
#include "serve/trace/trace.h"

struct mip_part;

/* What the parts of a packet share. */
struct mip_source {
    struct worker *worker;
    struct model_version *version; /* referenced until the packet ends */
    const struct mip_plan *plan;
    const struct mip_infer *infer; /* n_inputs is one that fits the plan */
    const struct json_limits *limits;
    struct pictures *pictures; /* NULL: none can be decoded */
    struct tracer *tracer;     /* each part is a request to it; NULL: none is traced */
    /* A picture came, or the model's answer. May run before mip_part_submit or mip_part_cancel
     * returns. */
    void (*moved)(struct mip_part *part);
};

/* part_move is the only one that changes it. */
enum mip_part_state {
    MIP_PART_GATHERING, /* takes elements; their pictures are being decoded already */
    MIP_PART_CLOSED,    /* takes no more; waits for its pictures, or to be submitted */
    MIP_PART_CALLED,    /* with the model */
    MIP_PART_ANSWERED,  /* `error` or outputs, to be written */
};

struct mip_part_input {
    struct shape shape; /* of an element, once there is one */
    struct piece *pieces;
    size_t n_pieces, cap_pieces;
    size_t n_bytes;
    char *slots; /* where decoded pictures go, one behind the other */
    size_t n_slots, n_used;
};

/* A picture of the part, on its way or there. */
struct mip_part_picture {
    struct picture_job job;
    struct mip_part *part;
    struct mip_part_picture *next;
    size_t element, input;
    bool done;
};

/* Lives in its own arena. */
struct mip_part {
    struct call call;
    struct infer_request request;
    struct mip_source *source;
    enum mip_part_state state;
    struct arena *arena;
    size_t first;    /* element of the packet's batch that it begins with */
    size_t n;        /* elements it has */
    size_t capacity; /* elements it may have */
    struct mip_part_input *inputs;
    struct tensor *fresh; /* the element being taken: one tensor per input */
    struct mip_part_picture *pictures;
    size_t n_decoding;
    struct trace *trace;
    struct error error; /* of a picture or the model */
    struct mip_rows *rows;
    size_t n_written;
};

/* Makes a part that begins with the element `first`, of at most `capacity` elements and (about)
 * `memory_bytes`. Returns: NULL when there is no memory. */
struct mip_part *mip_part_new(struct mip_source *source, size_t first, size_t capacity,
                              size_t memory_bytes);
/* Takes the next element of the batch. It is not taken, and still to be done, when its shapes are
 * not those of the elements before it (`taken` false). Returns: what is wrong with an item;
 * ST_NO_MEMORY, and what was taken before stays good. */
enum status mip_part_take(struct mip_part *part, bool *taken, struct error *err)
    __attribute__((warn_unused_result));
/* No more elements. */
void mip_part_close(struct mip_part *part);
/* Closed, and all pictures are there? */
bool mip_part_is_ready(const struct mip_part *part);
/* Hands a ready part to the model. Returns: why the model can't take it, and then it is still
 * closed. */
enum status mip_part_submit(struct mip_part *part, struct error *err)
    __attribute__((warn_unused_result));
/* Appends the outputs of the next element to the answer; `more`: there are further ones.
 * `may_view`: the part is freed after the answer is sent. Returns: ST_BAD_OUTPUT, ST_NO_MEMORY. */
enum status mip_part_write(struct mip_part *part, struct mip_answer_writer *writer, bool may_view,
                           bool *more, struct error *err) __attribute__((warn_unused_result));

/* Nobody waits for it any more: what can be stopped is stopped. */
void mip_part_cancel(struct mip_part *part);
/* Does nobody else use it: no picture is being decoded, the model does not have it? */
bool mip_part_is_quiet(const struct mip_part *part);
/* Gives everything back, the answer's outputs too; a quiet part only. */
void mip_part_free(struct mip_part *part);

#endif
