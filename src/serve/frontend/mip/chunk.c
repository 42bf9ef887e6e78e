/* The life of a part: made, closed, called, written, freed. */
#include "serve/frontend/mip/chunk.h"

#include <assert.h>

static void chunk_set_state(struct mip_chunk *chunk, enum mip_chunk_state to) {
    static const bool allowed[][MIP_CHUNK_ANSWERED + 1] = {
        [MIP_CHUNK_FILLING] = {[MIP_CHUNK_CLOSED] = true},
        [MIP_CHUNK_CLOSED] = {[MIP_CHUNK_RUNNING] = true},
        [MIP_CHUNK_RUNNING] = {[MIP_CHUNK_ANSWERED] = true},
        [MIP_CHUNK_ANSWERED] = {[MIP_CHUNK_FILLING] = false},
    };
    assert(allowed[chunk->state][to]);
    chunk->state = to;
}

/* ---- in -------------------------------------------------------------------------------------- */

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory for a part of the batch");
}

struct mip_chunk *mip_chunk_new(struct mip_chunk_context *context, size_t first, size_t capacity,
                                size_t memory_bytes) {
    size_t n = context->infer->n_inputs;
    struct arena *arena = arena_new(worker_arenas(context->worker), memory_bytes);
    struct mip_chunk *chunk = arena ? arena_alloc(arena, sizeof(*chunk)) : NULL;
    struct mip_chunk_input *inputs = chunk ? arena_calloc(arena, n, sizeof(*inputs)) : NULL;
    struct tensor *element_tensor = chunk ? arena_calloc(arena, n, sizeof(*element_tensor)) : NULL;
    if (!inputs || !element_tensor) {
        arena_free(arena);
        return NULL;
    }
    /* Field by field: the call, and the texts of errors, are large and set by others. */
    chunk->context = context;
    chunk->state = MIP_CHUNK_FILLING;
    chunk->arena = arena;
    chunk->inputs = inputs;
    chunk->element_tensor = element_tensor;
    chunk->first = first;
    chunk->n = 0;
    chunk->capacity = capacity;
    chunk->pictures = NULL;
    chunk->n_decoding = 0;
    chunk->trace = NULL;
    chunk->error.status = ST_OK;
    chunk->rows = NULL;
    chunk->n_written = 0;
    return chunk;
}

void mip_chunk_close(struct mip_chunk *chunk) {
    chunk_set_state(chunk, MIP_CHUNK_CLOSED);
}

bool mip_chunk_is_ready(const struct mip_chunk *chunk) {
    return chunk->state == MIP_CHUNK_CLOSED && chunk->n_decoding == 0;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* The batch dimension, and behind it those of an element. */
static bool batch_shape(const struct mip_chunk *chunk, struct shape element, struct shape *out) {
    if (!chunk->context->plan->batches) {
        *out = element;
        return true;
    }
    int64_t *dims = arena_calloc(chunk->arena, element.rank + 1, sizeof(*dims));
    if (!dims) {
        return false;
    }
    dims[0] = (int64_t)chunk->n;
    for (size_t i = 0; i < element.rank; i++) {
        dims[i + 1] = element.dims[i];
    }
    *out = (struct shape){dims, element.rank + 1};
    return true;
}

static enum status build_request(struct mip_chunk *chunk, struct error *err) {
    size_t n = chunk->context->infer->n_inputs;
    struct infer_input *inputs = arena_calloc(chunk->arena, n, sizeof(*inputs));
    if (!inputs) {
        return no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        const struct mip_chunk_input *input = &chunk->inputs[i];
        struct tensor *tensor = &inputs[i].tensor;
        const struct tensor_spec *spec = &chunk->context->plan->spec->inputs[i];
        tensor->name = spec->name;
        tensor->datatype = spec->datatype;
        tensor->pieces = input->pieces;
        tensor->n_pieces = input->n_pieces;
        tensor->n_bytes = input->n_bytes;
        if (!batch_shape(chunk, input->shape, &tensor->shape)) {
            return no_memory(err);
        }
    }
    chunk->request =
        (struct infer_request){.arena = chunk->arena, .inputs = inputs, .n_inputs = n, .batch = 1};
    enum status st = infer_check(&chunk->request, chunk->context->plan->spec, err);
    return st == ST_OK ? infer_align_copy(&chunk->request, err) : st;
}

static void on_answer(struct call *call) {
    struct mip_chunk *chunk = (struct mip_chunk *)((char *)call - offsetof(struct mip_chunk, call));
    chunk_set_state(chunk, MIP_CHUNK_ANSWERED);
    trace_add_response(chunk->trace, call);
    trace_end(&chunk->trace);
    if (call->response.error.status != ST_OK) {
        chunk->error = call->response.error;
    }
    chunk->context->progressed(chunk);
}

enum status mip_chunk_submit(struct mip_chunk *chunk, struct error *err) {
    assert(mip_chunk_is_ready(chunk) && chunk->n > 0);
    enum status st = build_request(chunk, err);
    if (st != ST_OK) {
        return st;
    }
    chunk->call.request = &chunk->request;
    chunk->call.worker = chunk->context->worker;
    chunk->call.done = on_answer;
    chunk->call.run_immediately = false;
    if (chunk->context->tracer) {
        chunk->trace = trace_begin(chunk->context->tracer, chunk->context->plan->spec);
        trace_add_request(chunk->trace, &chunk->request);
    }
    chunk_set_state(chunk, MIP_CHUNK_RUNNING);
    model_version_ref(chunk->context->version);
    call_submit(&chunk->call, chunk->context->version);
    return ST_OK;
}

/* ---- out ------------------------------------------------------------------------------------- */

static enum status init_rows(struct mip_chunk *chunk, struct error *err) {
    const struct infer_response *response = &chunk->call.response;
    uint64_t n_rows = chunk->context->plan->batches ? chunk->n : 0;
    chunk->rows = arena_calloc(chunk->arena, response->n_outputs, sizeof(*chunk->rows));
    if (!chunk->rows) {
        return no_memory(err);
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        enum status st = mip_rows_init(&chunk->rows[i], &response->outputs[i], n_rows, err);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

enum status mip_chunk_write(struct mip_chunk *chunk, struct mip_answer_writer *writer,
                            bool may_view, bool *more, struct error *err) {
    assert(chunk->state == MIP_CHUNK_ANSWERED && chunk->error.status == ST_OK);
    enum status st = chunk->rows ? ST_OK : init_rows(chunk, err);
    for (size_t i = 0; st == ST_OK && i < chunk->call.response.n_outputs; i++) {
        struct tensor row;
        mip_rows_next(&chunk->rows[i], &row);
        st = mip_answer_add(writer, i, &row, may_view, chunk->arena, err);
    }
    chunk->n_written++;
    *more = chunk->n_written < chunk->n;
    return st;
}

/* ---- the end --------------------------------------------------------------------------------- */

void mip_chunk_cancel(struct mip_chunk *chunk) {
    for (struct mip_chunk_picture *picture = chunk->pictures; picture && chunk->n_decoding > 0;
         picture = picture->next) {
        if (!picture->done) {
            picture_cancel(chunk->context->pictures, &picture->job);
        }
    }
    if (chunk->state == MIP_CHUNK_RUNNING) {
        call_cancel(&chunk->call);
    }
}

bool mip_chunk_is_idle(const struct mip_chunk *chunk) {
    return chunk->n_decoding == 0 && chunk->state != MIP_CHUNK_RUNNING;
}

void mip_chunk_free(struct mip_chunk *chunk) {
    assert(mip_chunk_is_idle(chunk));
    if (chunk->state == MIP_CHUNK_ANSWERED) {
        infer_response_release(&chunk->call.response);
    }
    arena_free(chunk->arena); /* the part itself, too */
}
