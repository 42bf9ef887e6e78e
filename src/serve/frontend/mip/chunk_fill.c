/* Taking an element of the batch into a part: each of its items is read, and only when all of them
 * fit is any of them the part's. What was read lies where it was read: a tensor's bytes may be in
 * pieces, and the backend gathers them once. Pictures go straight to where the backend reads
 * them. */
#include <assert.h>
#include <inttypes.h>

#include "codec/mip/item.h"
#include "core/base/checked.h"
#include "core/tensor/bytes.h"
#include "serve/frontend/mip/chunk.h"

enum { FIRST_PIECES = 8, FILE_PIECES = 2 };

static enum status no_memory(const struct mip_chunk *chunk, struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory after %zu bytes for the elements of a batch",
                     arena_bytes(chunk->arena));
}

static const struct mip_item *item_at(const struct mip_chunk *chunk, size_t input) {
    const struct mip_infer *infer = chunk->context->infer;
    return &infer->items[(chunk->first + chunk->n) * infer->n_inputs + input];
}

static bool is_decoded(const struct mip_chunk *chunk, size_t input) {
    return item_at(chunk, input)->type == MIP_IMAGE &&
           chunk->context->plan->inputs[input].pictures == MIP_PICTURES_DECODED;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The file itself is the element: its length, and its bytes where they came in. */
static enum status read_picture_file(struct mip_chunk *chunk, struct str file,
                                     const struct mip_input *input, struct tensor *out,
                                     struct error *err) {
    struct piece *pieces = arena_calloc(chunk->arena, FILE_PIECES, sizeof(*pieces));
    char *length = arena_alloc(chunk->arena, BYTES_LENGTH_BYTES);
    if (!pieces || !length) {
        return no_memory(chunk, err);
    }
    bytes_encode_length(length, (uint32_t)file.len); /* a packet has less than 4 GiB */
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
                                input->dims, chunk->context->limits, out, err);
    } else if (item->type == MIP_TEXT) {
        st = mip_item_read_text(chunk->arena, item->data, "item", input->spec->datatype,
                                input->dims, chunk->context->limits, out, err);
    } else if (item->type == MIP_IMAGE) {
        st = read_picture(chunk, item->data, input, out, err);
    } else {
        st = error_set(err, ST_UNSUPPORTED,
                       "expected an item of type 1 (TEXT), 2 (JSON) or 3 (IMAGE), got %" PRIu32,
                       item->type);
    }
    if (st != ST_OK && st != ST_NO_MEMORY) {
        char name[TENSOR_NAME_TEXT_BYTES];
        error_prefix(err, "batch element %zu, input %s", chunk->first + chunk->n,
                     tensor_name_print(input->spec->name, name));
    }
    return st;
}

/* ---- room ------------------------------------------------------------------------------------ */

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

/* Room for the pictures of all elements that are still to come; where memory is short the part will
 * have fewer. */
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
    picture->done = true; /* it has not begun */
    chunk->pictures = picture;
    return true;
}

/* Everything that can fail happens before anything is the part's. */
static enum status reserve_element(struct mip_chunk *chunk, struct error *err) {
    for (size_t i = 0; i < chunk->context->infer->n_inputs; i++) {
        struct mip_chunk_input *input = &chunk->inputs[i];
        size_t n_bytes;
        bool decoded = is_decoded(chunk, i);
        if (!reserve_pieces(chunk, input, decoded ? 1 : chunk->element_tensor[i].n_pieces) ||
            (decoded && !add_picture(chunk, i)) ||
            !checked_add(input->n_bytes, chunk->element_tensor[i].n_bytes, &n_bytes)) {
            return no_memory(chunk, err);
        }
    }
    return ST_OK;
}

/* ---- the part's own -------------------------------------------------------------------------- */

static void on_picture(struct picture_job *job) {
    struct mip_chunk_picture *picture =
        (struct mip_chunk_picture *)((char *)job - offsetof(struct mip_chunk_picture, job));
    struct mip_chunk *chunk = picture->chunk;
    picture->done = true;
    chunk->n_decoding--;
    if (job->error.status != ST_OK && chunk->error.status == ST_OK) {
        char name[TENSOR_NAME_TEXT_BYTES];
        chunk->error = job->error;
        error_prefix(
            &chunk->error, "batch element %zu, input %s", picture->element,
            tensor_name_print(chunk->context->plan->spec->inputs[picture->input].name, name));
    }
    chunk->context->progressed(chunk);
}

/* Returns: where the picture will be. */
static void *start_decoding(struct mip_chunk *chunk, size_t index) {
    const struct mip_input *plan = &chunk->context->plan->inputs[index];
    struct mip_chunk_input *input = &chunk->inputs[index];
    struct mip_chunk_picture *picture = chunk->pictures;
    while (picture->input != index || picture->element != chunk->first + chunk->n) {
        picture = picture->next;
    }
    void *slot = input->slots + input->n_used++ * plan->picture_bytes;
    picture->done = false;
    picture->job = (struct picture_job){.file = item_at(chunk, index)->data,
                                        .plan = &plan->picture,
                                        .out = slot,
                                        .worker = chunk->context->worker,
                                        .done = on_picture};
    chunk->n_decoding++;
    picture_submit(chunk->context->pictures, &picture->job);
    return slot;
}

/* A picture that lies right behind the one before it makes one piece with it. */
static void add_piece(struct mip_chunk_input *input, const char *data, size_t n_bytes) {
    struct piece *last = input->n_pieces > 0 ? &input->pieces[input->n_pieces - 1] : NULL;
    assert(input->pieces); /* make_room has seen to it */
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

enum status mip_chunk_add_element(struct mip_chunk *chunk, bool *taken, struct error *err) {
    enum status st = ST_OK;
    *taken = false;
    for (size_t i = 0; i < chunk->context->infer->n_inputs && st == ST_OK; i++) {
        st = read_item(chunk, i, err);
    }
    if (st != ST_OK || !has_same_shapes(chunk)) {
        return st;
    }
    st = reserve_element(chunk, err);
    if (st == ST_OK) {
        append_element(chunk);
        *taken = true;
    }
    return st;
}
