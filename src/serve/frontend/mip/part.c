/* The life of a part: made, closed, called, written, freed. */
#include "serve/frontend/mip/part.h"

#include <assert.h>

static void part_move(struct mip_part *part, enum mip_part_state to) {
    static const bool allowed[][MIP_PART_ANSWERED + 1] = {
        [MIP_PART_GATHERING] = {[MIP_PART_CLOSED] = true},
        [MIP_PART_CLOSED] = {[MIP_PART_CALLED] = true},
        [MIP_PART_CALLED] = {[MIP_PART_ANSWERED] = true},
        [MIP_PART_ANSWERED] = {[MIP_PART_GATHERING] = false},
    };
    assert(allowed[part->state][to]);
    part->state = to;
}

/* ---- in -------------------------------------------------------------------------------------- */

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory for a part of the batch");
}

struct mip_part *mip_part_new(struct mip_source *source, size_t first, size_t capacity,
                              size_t memory_bytes) {
    size_t n = source->infer->n_inputs;
    struct arena *arena = arena_new(worker_arenas(source->worker), memory_bytes);
    struct mip_part *part = arena ? arena_alloc(arena, sizeof(*part)) : NULL;
    struct mip_part_input *inputs = part ? arena_calloc(arena, n, sizeof(*inputs)) : NULL;
    struct tensor *fresh = part ? arena_calloc(arena, n, sizeof(*fresh)) : NULL;
    if (!inputs || !fresh) {
        arena_free(arena);
        return NULL;
    }
    /* Field by field: the call, and the texts of errors, are large and set by others. */
    part->source = source;
    part->state = MIP_PART_GATHERING;
    part->arena = arena;
    part->inputs = inputs;
    part->fresh = fresh;
    part->first = first;
    part->n = 0;
    part->capacity = capacity;
    part->pictures = NULL;
    part->n_decoding = 0;
    part->trace = NULL;
    part->error.status = ST_OK;
    part->rows = NULL;
    part->n_written = 0;
    return part;
}

void mip_part_close(struct mip_part *part) {
    part_move(part, MIP_PART_CLOSED);
}

bool mip_part_is_ready(const struct mip_part *part) {
    return part->state == MIP_PART_CLOSED && part->n_decoding == 0;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* The batch dimension, and behind it those of an element. */
static bool full_shape(const struct mip_part *part, struct shape element, struct shape *out) {
    if (!part->source->plan->batches) {
        *out = element;
        return true;
    }
    int64_t *dims = arena_calloc(part->arena, element.rank + 1, sizeof(*dims));
    if (!dims) {
        return false;
    }
    dims[0] = (int64_t)part->n;
    for (size_t i = 0; i < element.rank; i++) {
        dims[i + 1] = element.dims[i];
    }
    *out = (struct shape){dims, element.rank + 1};
    return true;
}

static enum status make_request(struct mip_part *part, struct error *err) {
    size_t n = part->source->infer->n_inputs;
    struct infer_input *inputs = arena_calloc(part->arena, n, sizeof(*inputs));
    if (!inputs) {
        return no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        const struct mip_part_input *input = &part->inputs[i];
        struct tensor *tensor = &inputs[i].tensor;
        const struct tensor_spec *spec = &part->source->plan->spec->inputs[i];
        tensor->name = spec->name;
        tensor->datatype = spec->datatype;
        tensor->pieces = input->pieces;
        tensor->n_pieces = input->n_pieces;
        tensor->n_bytes = input->n_bytes;
        if (!full_shape(part, input->shape, &tensor->shape)) {
            return no_memory(err);
        }
    }
    part->request =
        (struct infer_request){.arena = part->arena, .inputs = inputs, .n_inputs = n, .batch = 1};
    enum status st = infer_check(&part->request, part->source->plan->spec, err);
    return st == ST_OK ? infer_align_copy(&part->request, err) : st;
}

static void on_answer(struct call *call) {
    struct mip_part *part = (struct mip_part *)((char *)call - offsetof(struct mip_part, call));
    part_move(part, MIP_PART_ANSWERED);
    trace_answered(part->trace, call);
    trace_end(&part->trace);
    if (call->response.error.status != ST_OK) {
        part->error = call->response.error;
    }
    part->source->moved(part);
}

enum status mip_part_submit(struct mip_part *part, struct error *err) {
    assert(mip_part_is_ready(part) && part->n > 0);
    enum status st = make_request(part, err);
    if (st != ST_OK) {
        return st;
    }
    part->call.request = &part->request;
    part->call.worker = part->source->worker;
    part->call.done = on_answer;
    part->call.at_once = false;
    if (part->source->tracer) {
        part->trace = trace_begin(part->source->tracer, part->source->plan->spec);
        trace_asked(part->trace, &part->request);
    }
    part_move(part, MIP_PART_CALLED);
    model_version_ref(part->source->version);
    call_submit(&part->call, part->source->version);
    return ST_OK;
}

/* ---- out ------------------------------------------------------------------------------------- */

static enum status make_rows(struct mip_part *part, struct error *err) {
    const struct infer_response *response = &part->call.response;
    uint64_t n_rows = part->source->plan->batches ? part->n : 0;
    part->rows = arena_calloc(part->arena, response->n_outputs, sizeof(*part->rows));
    if (!part->rows) {
        return no_memory(err);
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        enum status st = mip_rows_init(&part->rows[i], &response->outputs[i], n_rows, err);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

enum status mip_part_write(struct mip_part *part, struct mip_answer_writer *writer, bool may_view,
                           bool *more, struct error *err) {
    assert(part->state == MIP_PART_ANSWERED && part->error.status == ST_OK);
    enum status st = part->rows ? ST_OK : make_rows(part, err);
    for (size_t i = 0; st == ST_OK && i < part->call.response.n_outputs; i++) {
        struct tensor row;
        mip_rows_next(&part->rows[i], &row);
        st = mip_answer_add(writer, i, &row, may_view, part->arena, err);
    }
    part->n_written++;
    *more = part->n_written < part->n;
    return st;
}

/* ---- the end --------------------------------------------------------------------------------- */

void mip_part_cancel(struct mip_part *part) {
    for (struct mip_part_picture *picture = part->pictures; picture && part->n_decoding > 0;
         picture = picture->next) {
        if (!picture->done) {
            picture_cancel(part->source->pictures, &picture->job);
        }
    }
    if (part->state == MIP_PART_CALLED) {
        call_cancel(&part->call);
    }
}

bool mip_part_is_quiet(const struct mip_part *part) {
    return part->n_decoding == 0 && part->state != MIP_PART_CALLED;
}

void mip_part_free(struct mip_part *part) {
    assert(mip_part_is_quiet(part));
    if (part->state == MIP_PART_ANSWERED) {
        infer_response_release(&part->call.response);
    }
    arena_free(part->arena); /* the part itself, too */
}
