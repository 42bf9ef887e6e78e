/* The life of a chunk: created, filled, closed, run, written, freed. Elements are read item by
 * item; an element is added only when all its items are valid. Tensor bytes stay where they were
 * read, in pieces, and the backend gathers them once. Pictures are decoded to where the backend
 * reads them. */
#include "serve/frontend/mip/chunk.h"

#include <assert.h>
#include <inttypes.h>
#include <stdalign.h>

#include "codec/mip/item.h"
#include "core/base/checked.h"
#include "core/base/compiler.h"
#include "core/base/transition.h"
#include "core/tensor/bytes.h"

enum { FIRST_PIECES = 8, FILE_PIECES = 2 };

static_assert(alignof(struct infer_input) <= alignof(struct infer_request),
              "inputs may follow the request");
static_assert(sizeof(struct mip_chunk) <= 2048, "an arena allocates larger blocks with malloc");

#define TO(state) STATE_SET(MIP_CHUNK_##state)

static void chunk_set_state(struct mip_chunk *chunk, enum mip_chunk_state to) {
    static const uint32_t NEXT[] = {
        [MIP_CHUNK_FILLING] = TO(CLOSED),
        [MIP_CHUNK_CLOSED] = TO(RUNNING),
        [MIP_CHUNK_RUNNING] = TO(ANSWERED),
        [MIP_CHUNK_ANSWERED] = 0,
    };
    assert(transition_is_legal(NEXT, chunk->state, to));
    chunk->state = to;
}

/* ---- create and close ------------------------------------------------------------------------ */

struct mip_chunk *mip_chunk_new(struct mip_chunk_context *context, size_t first, size_t capacity,
                                size_t memory_bytes) {
    size_t n = context->infer->n_inputs;
    struct arena_cache *cache = context->is_large ? NULL : worker_arenas(context->worker);
    struct arena *arena = arena_new(cache, memory_bytes);
    struct mip_chunk *chunk = arena ? arena_alloc(arena, sizeof(*chunk)) : NULL;
    struct mip_chunk_input *inputs = chunk ? arena_calloc(arena, n, sizeof(*inputs)) : NULL;
    struct tensor *element_tensor = chunk ? arena_calloc(arena, n, sizeof(*element_tensor)) : NULL;
    if (!inputs || !element_tensor) {
        arena_free(arena);
        return NULL;
    }
    if (context->account) {
        arena_set_budget(arena, &context->account->quota->options.budget->arena);
    }
    arena_set_cancelled(arena, &context->cancelled);
    /* Set field by field, because zeroing the call and the error texts would be expensive. */
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

/* ---- elements: items ------------------------------------------------------------------------- */

static const struct mip_item *item_at(const struct mip_chunk *chunk, size_t input) {
    const struct mip_infer *infer = chunk->context->infer;
    return &infer->items[(chunk->first + chunk->n) * infer->n_inputs + input];
}

static bool is_decoded(const struct mip_chunk *chunk, size_t input) {
    return item_at(chunk, input)->type == MIP_IMAGE &&
           chunk->context->plan->inputs[input].pictures == MIP_PICTURES_DECODED;
}

/* The picture file itself is the element: its length, and its bytes in place. */
static enum status read_picture_file(struct mip_chunk *chunk, struct str file,
                                     const struct mip_input *input, struct tensor *out,
                                     struct error *err) {
    struct piece *pieces = arena_calloc(chunk->arena, FILE_PIECES, sizeof(*pieces));
    char *length = arena_alloc(chunk->arena, BYTES_LENGTH_BYTES);
    if (!pieces || !length) {
        return error_no_memory(err, "the elements of a batch, after %zu bytes",
                               arena_bytes(chunk->arena));
    }
    bytes_encode_length(length, (uint32_t)file.len); /* a packet is shorter than 4 GiB */
    pieces[0] = (struct piece){length, BYTES_LENGTH_BYTES};
    pieces[1] = (struct piece){file.ptr, file.len};
    *out = (struct tensor){.datatype = DT_BYTES,
                           .shape = input->picture_dims,
                           .pieces = pieces,
                           .n_pieces = file.len > 0 ? FILE_PIECES : 1,
                           .n_bytes = BYTES_LENGTH_BYTES + file.len};
    return ST_OK;
}

static enum status read_picture(struct mip_chunk *chunk, struct str file,
                                const struct mip_input *input, struct tensor *out,
                                struct error *err) {
    switch (input->pictures) {
    case MIP_PICTURES_AS_FILE:
        return read_picture_file(chunk, file, input, out, err);
    case MIP_PICTURES_DECODED:
        *out = (struct tensor){.datatype = input->spec->datatype,
                               .shape = input->picture_dims,
                               .n_bytes = input->picture_bytes};
        return chunk->context->pictures
                   ? ST_OK
                   : error_set(err, ST_UNSUPPORTED, "pictures are not decoded here");
    case MIP_PICTURES_REFUSED:
        break;
    }
    return error_set(err, ST_UNSUPPORTED, "an IMAGE cannot be read: %s", input->why_refused);
}

static enum status read_item(struct mip_chunk *chunk, size_t index, struct error *err) {
    const struct mip_item *item = item_at(chunk, index);
    const struct mip_input *input = &chunk->context->plan->inputs[index];
    struct tensor *out = &chunk->element_tensor[index];
    enum status st = ST_OK;
    *out = (struct tensor){.name = input->spec->name};
    if (item->type == MIP_JSON) {
        st = mip_item_read_json(chunk->arena, item->data, "item", input->spec->datatype,
                                input->dims, &chunk->context->services->limits, out, err);
    } else if (item->type == MIP_TEXT) {
        st = mip_item_read_text(chunk->arena, item->data, "item", input->spec->datatype,
                                input->dims, &chunk->context->services->limits, out, err);
    } else if (item->type == MIP_IMAGE) {
        st = read_picture(chunk, item->data, input, out, err);
    } else {
        st = error_set(err, ST_UNSUPPORTED,
                       "expected an item of type 1 (TEXT), 2 (JSON) or 3 (IMAGE), got %" PRIu32,
                       item->type);
    }
    if (st != ST_OK && st != ST_NO_MEMORY) {
        char name[QUOTED_NAME_BYTES], origin[ORIGIN_TEXT_BYTES];
        if (st == ST_BAD_SHAPE && err) {
            tensor_origin_print(chunk->context->plan->spec, input->spec->origin, origin);
            error_set(err, st, "%s%s", err->text, origin);
        }
        error_prefix(err, "batch element %zu, input %s", chunk->first + chunk->n,
                     quote_name(input->spec->name, name));
    }
    return st;
}

/* ---- elements: capacity ---------------------------------------------------------------------- */

static bool reserve_pieces(struct mip_chunk *chunk, struct mip_chunk_input *input, size_t n) {
    if (n <= input->cap_pieces - input->n_pieces) {
        return true;
    }
    size_t cap = input->cap_pieces * 2 + FIRST_PIECES;
    struct piece *pieces = arena_realloc(
        chunk->arena, input->pieces, input->cap_pieces * sizeof(*pieces), cap * sizeof(*pieces));
    if (!pieces) {
        return false;
    }
    input->pieces = pieces;
    input->cap_pieces = cap;
    return true;
}

/* Reserves memory for the pictures of all further elements; when memory is short, reduces the
 * capacity of the chunk. */
static bool reserve_slots(struct mip_chunk *chunk, struct mip_chunk_input *input, size_t n_bytes) {
    size_t n = chunk->capacity - chunk->n, total;
    while (n > 0 && !input->slots) {
        if (checked_mul(n, n_bytes, &total)) {
            input->slots = arena_alloc_aligned(chunk->arena, total, 64);
        }
        input->n_slots = n;
        n /= 2;
    }
    if (!input->slots) {
        return false;
    }
    chunk->capacity = chunk->n + input->n_slots;
    return true;
}

static bool add_picture(struct mip_chunk *chunk, size_t index) {
    struct mip_chunk_input *input = &chunk->inputs[index];
    if (!input->slots &&
        !reserve_slots(chunk, input, chunk->context->plan->inputs[index].picture_bytes)) {
        return false;
    }
    struct mip_chunk_picture *picture = arena_calloc(chunk->arena, 1, sizeof(*picture));
    if (!picture) {
        return false;
    }
    picture->chunk = chunk;
    picture->element = chunk->first + chunk->n;
    picture->input = index;
    picture->next = chunk->pictures;
    picture->done = true; /* not submitted yet */
    chunk->pictures = picture;
    return true;
}

/* Reserves everything that append_element needs, so that adding cannot fail half-way. */
static enum status reserve_element(struct mip_chunk *chunk, struct error *err) {
    for (size_t i = 0; i < chunk->context->infer->n_inputs; i++) {
        struct mip_chunk_input *input = &chunk->inputs[i];
        size_t n_bytes;
        bool decoded = is_decoded(chunk, i);
        if (!reserve_pieces(chunk, input, decoded ? 1 : chunk->element_tensor[i].n_pieces) ||
            (decoded && !add_picture(chunk, i)) ||
            !checked_add(input->n_bytes, chunk->element_tensor[i].n_bytes, &n_bytes)) {
            return error_no_memory(err, "the elements of a batch, after %zu bytes",
                                   arena_bytes(chunk->arena));
        }
    }
    return ST_OK;
}

/* ---- elements: adding one -------------------------------------------------------------------- */

static void on_picture(struct picture_job *job) {
    struct mip_chunk_picture *picture = CONTAINER_OF(job, struct mip_chunk_picture, job);
    struct mip_chunk *chunk = picture->chunk;
    picture->done = true;
    chunk->n_decoding--;
    if (job->error.status != ST_OK && chunk->error.status == ST_OK) {
        char name[QUOTED_NAME_BYTES];
        chunk->error = job->error;
        error_prefix(&chunk->error, "batch element %zu, input %s", picture->element,
                     quote_name(chunk->context->plan->spec->inputs[picture->input].name, name));
    }
    chunk->context->progressed(chunk);
}

/* Submits the picture to the decoder. Returns: where its values will be. */
static void *start_decoding(struct mip_chunk *chunk, size_t index) {
    const struct mip_input *plan = &chunk->context->plan->inputs[index];
    struct mip_chunk_input *input = &chunk->inputs[index];
    struct mip_chunk_picture *picture = chunk->pictures;
    while (picture->input != index || picture->element != chunk->first + chunk->n) {
        picture = picture->next;
    }
    void *slot = input->slots + input->n_used++ * plan->picture_bytes;
    picture->done = false;
    picture->job = (struct picture_job){
        .file = item_at(chunk, index)->data,
        .plan = &plan->picture,
        .out = slot,
        .worker = chunk->context->worker,
        .client = net_peer_client(memory_account_peer(chunk->context->account)),
        .done = on_picture};
    chunk->n_decoding++;
    picture_submit(chunk->context->pictures, &picture->job);
    return slot;
}

/* Appends a piece; a picture adjacent to the previous one extends its piece. */
static void add_piece(struct mip_chunk_input *input, const char *data, size_t n_bytes) {
    struct piece *last = input->n_pieces > 0 ? &input->pieces[input->n_pieces - 1] : NULL;
    assert(input->pieces); /* reserve_pieces has allocated it */
    bool joins = data != input->slots && last && (const char *)last->data + last->n_bytes == data;
    if (joins) {
        last->n_bytes += n_bytes;
    } else {
        input->pieces[input->n_pieces++] = (struct piece){data, n_bytes};
    }
    input->n_bytes += n_bytes;
}

static void append_element(struct mip_chunk *chunk) {
    for (size_t i = 0; i < chunk->context->infer->n_inputs; i++) {
        struct mip_chunk_input *input = &chunk->inputs[i];
        const struct tensor *element_tensor = &chunk->element_tensor[i];
        if (chunk->n == 0) {
            input->shape = element_tensor->shape;
        }
        if (is_decoded(chunk, i)) {
            add_piece(input, start_decoding(chunk, i), element_tensor->n_bytes);
            continue;
        }
        for (size_t p = 0; p < element_tensor->n_pieces; p++) {
            input->pieces[input->n_pieces++] = element_tensor->pieces[p];
        }
        input->n_bytes += element_tensor->n_bytes;
    }
    chunk->n++;
}

static bool has_same_shapes(const struct mip_chunk *chunk) {
    for (size_t i = 0; chunk->n > 0 && i < chunk->context->infer->n_inputs; i++) {
        if (!shape_eq(chunk->inputs[i].shape, chunk->element_tensor[i].shape)) {
            return false;
        }
    }
    return true;
}

/* Estimates for a slow core, per byte of an item that is read, and of a tensor that is printed. */
enum { PARSE_JSON_NS = 5, READ_TEXT_NS = 1, PRINT_NS = 8 };

uint64_t mip_chunk_read_ns(const struct mip_chunk *chunk) {
    uint64_t ns = 0;
    for (size_t i = 0; i < chunk->context->infer->n_inputs; i++) {
        const struct mip_item *item = item_at(chunk, i);
        ns += item->type == MIP_JSON   ? item->data.len * PARSE_JSON_NS
              : item->type == MIP_TEXT ? item->data.len * READ_TEXT_NS
                                       : 0;
    }
    return ns;
}

enum status mip_chunk_read_element(struct mip_chunk *chunk, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < chunk->context->infer->n_inputs && st == ST_OK; i++) {
        st = read_item(chunk, i, err);
    }
    return st;
}

enum status mip_chunk_add_element(struct mip_chunk *chunk, bool *taken, struct error *err) {
    *taken = false;
    if (!has_same_shapes(chunk)) {
        return ST_OK;
    }
    enum status st = reserve_element(chunk, err);
    if (st == ST_OK) {
        append_element(chunk);
        *taken = true;
    }
    return st;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* The shape of the whole chunk: the batch dimension, then those of an element. */
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

static struct mip_chunk *mip_chunk_of(struct client_inference *inference) {
    return CONTAINER_OF(inference, struct mip_chunk, inference);
}

static struct trace *begin_trace(struct client_inference *inference, struct tracer *tracer) {
    return trace_begin(tracer, inference->base.spec);
}

/* The elements become one request. */
static enum status build_request(struct client_inference *inference, struct error *err) {
    struct mip_chunk *chunk = mip_chunk_of(inference);
    size_t n = chunk->context->infer->n_inputs;
    /* The request, then its inputs. */
    struct infer_request *request =
        arena_calloc(chunk->arena, 1, sizeof(*request) + n * sizeof(struct infer_input));
    inference->base.call.request = request;
    if (!request) {
        return error_no_memory(err, "a part of the batch");
    }
    struct infer_input *inputs = (struct infer_input *)(void *)(request + 1);
    request->arena = chunk->arena;
    request->inputs = inputs;
    request->n_inputs = n;
    request->batch = 1;
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
            return error_no_memory(err, "a part of the batch");
        }
    }
    return ST_OK;
}

/* Prepares the rows of the outputs; mip_chunk_write encodes them one by one. */
static enum status init_rows(struct client_inference *inference, struct infer_response *response,
                             struct arena *arena, bool last, void *out, struct error *err) {
    struct mip_chunk *chunk = out;
    uint64_t n_rows = chunk->context->plan->batches ? chunk->n : 0;
    (void)inference;
    (void)last;
    chunk->rows = arena_calloc(arena, chunk->context->plan->spec->n_outputs, sizeof(*chunk->rows));
    if (!chunk->rows) {
        return error_no_memory(err, "a part of the batch");
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        struct mip_rows *rows = &chunk->rows[infer_response_place(response, i)];
        enum status st = mip_rows_init(rows, &response->outputs[i], n_rows, err);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

static void respond(struct client_inference *inference, struct outgoing_response *outgoing) {
    struct mip_chunk *chunk = mip_chunk_of(inference);
    (void)outgoing; /* mip_chunk_begin_write encodes it */
    chunk_set_state(chunk, MIP_CHUNK_ANSWERED);
    if (inference->base.call.response.error.status != ST_OK) {
        chunk->error = inference->base.call.response.error;
    }
    trace_end(&inference->base.trace); /* the answer of the whole packet is sent later */
    chunk->context->progressed(chunk);
}

static const struct inference_protocol chunk_protocol = {
    .carries_one = MIP_CARRIES_ONE,
    .begin_trace = begin_trace,
    .decode = build_request,
    .encode = init_rows,
    .respond = respond,
};

void mip_chunk_submit(struct mip_chunk *chunk) {
    struct client_inference *inference = &chunk->inference;
    assert(mip_chunk_is_ready(chunk) && chunk->n > 0);
    chunk_set_state(chunk, MIP_CHUNK_RUNNING);
    client_inference_init(inference, &chunk_protocol, chunk->context->services,
                          chunk->context->worker, chunk->context->account);
    inference->base.arena = chunk->arena;
    if (inference_use_version(&inference->base, chunk->context->version,
                              &inference->base.call.response.error) != ST_OK) {
        respond(inference, NULL);
        return;
    }
    inference_run(&inference->base);
}

/* ---- writing the outputs --------------------------------------------------------------------- */

enum status mip_chunk_begin_write(struct mip_chunk *chunk, struct error *err) {
    assert(chunk->state == MIP_CHUNK_ANSWERED && chunk->error.status == ST_OK);
    return chunk->rows ? ST_OK : client_inference_encode(&chunk->inference.base.last, chunk, err);
}

uint64_t mip_chunk_write_ns(const struct mip_chunk *chunk) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < chunk->inference.base.call.response.n_outputs; i++) {
        n_bytes += chunk->inference.base.call.response.outputs[i].n_bytes;
    }
    return n_bytes / chunk->n * PRINT_NS;
}

enum status mip_chunk_write(struct mip_chunk *chunk, struct mip_answer_writer *writer,
                            bool may_view, struct arena *scratch, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < chunk->context->plan->spec->n_outputs; i++) {
        struct tensor row;
        if (!chunk->rows[i].tensor) { /* the model has left it out */
            st = mip_answer_add_missing(writer, err);
            continue;
        }
        mip_rows_next(&chunk->rows[i], &row);
        st = mip_answer_add(writer, i, &row, may_view, scratch, err);
    }
    chunk->n_written++;
    return st;
}

/* ---- cancel and free ------------------------------------------------------------------------- */

void mip_chunk_cancel(struct mip_chunk *chunk) {
    for (struct mip_chunk_picture *picture = chunk->pictures; picture && chunk->n_decoding > 0;
         picture = picture->next) {
        if (!picture->done) {
            picture_cancel(chunk->context->pictures, &picture->job);
        }
    }
    if (chunk->state == MIP_CHUNK_RUNNING) {
        inference_abandon(&chunk->inference.base);
    }
}

bool mip_chunk_is_idle(const struct mip_chunk *chunk) {
    return chunk->n_decoding == 0 && chunk->state != MIP_CHUNK_RUNNING;
}

void mip_chunk_free(struct mip_chunk *chunk) {
    assert(mip_chunk_is_idle(chunk));
    if (chunk->state == MIP_CHUNK_ANSWERED) {
        infer_response_release(&chunk->inference.base.call.response);
        client_inference_fini(&chunk->inference, chunk->n_written == chunk->n);
    }
    arena_free(chunk->arena); /* the chunk itself, too */
}
