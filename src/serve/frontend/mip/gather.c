/* Taking an element of the batch into a part: each of its items is read, and only when all of them
 * fit is any of them the part's. What was read lies where it was read: a tensor's bytes may be in
 * pieces, and the backend gathers them once. Pictures go straight to where the backend reads
 * them. */
#include <assert.h>
#include <inttypes.h>

#include "codec/mip/item.h"
#include "core/base/checked.h"
#include "core/tensor/bytes.h"
#include "serve/frontend/mip/part.h"

enum { FIRST_PIECES = 8, FILE_PIECES = 2 };

static enum status no_memory(const struct mip_part *part, struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory after %zu bytes for the elements of a batch",
                     arena_bytes(part->arena));
}

static const struct mip_item *item_at(const struct mip_part *part, size_t input) {
    const struct mip_infer *infer = part->source->infer;
    return &infer->items[(part->first + part->n) * infer->n_inputs + input];
}

static bool is_decoded(const struct mip_part *part, size_t input) {
    return item_at(part, input)->type == MIP_IMAGE &&
           part->source->plan->inputs[input].pictures == MIP_PICTURES_DECODED;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The file itself is the element: its length, and its bytes where they came in. */
static enum status read_file(struct mip_part *part, struct str file, const struct mip_input *input,
                             struct tensor *out, struct error *err) {
    struct piece *pieces = arena_calloc(part->arena, FILE_PIECES, sizeof(*pieces));
    char *length = arena_alloc(part->arena, BYTES_LENGTH_BYTES);
    if (!pieces || !length) {
        return no_memory(part, err);
    }
    bytes_put_length(length, (uint32_t)file.len); /* a packet has less than 4 GiB */
    pieces[0] = (struct piece){length, BYTES_LENGTH_BYTES};
    pieces[1] = (struct piece){file.ptr, file.len};
    *out = (struct tensor){.datatype = DT_BYTES,
                           .shape = input->picture_dims,
                           .pieces = pieces,
                           .n_pieces = file.len > 0 ? FILE_PIECES : 1,
                           .n_bytes = BYTES_LENGTH_BYTES + file.len};
    return ST_OK;
}

static enum status read_picture(struct mip_part *part, struct str file,
                                const struct mip_input *input, struct tensor *out,
                                struct error *err) {
    switch (input->pictures) {
    case MIP_PICTURES_AS_FILE:
        return read_file(part, file, input, out, err);
    case MIP_PICTURES_DECODED:
        *out = (struct tensor){.datatype = input->spec->datatype,
                               .shape = input->picture_dims,
                               .n_bytes = input->picture_bytes};
        return part->source->pictures
                   ? ST_OK
                   : error_set(err, ST_UNSUPPORTED, "pictures are not decoded here");
    case MIP_PICTURES_REFUSED:
        break;
    }
    return error_set(err, ST_UNSUPPORTED, "an IMAGE cannot be read: %s", input->why_refused);
}

static enum status read_item(struct mip_part *part, size_t index, struct error *err) {
    const struct mip_item *item = item_at(part, index);
    const struct mip_input *input = &part->source->plan->inputs[index];
    struct tensor *out = &part->fresh[index];
    enum status st = ST_OK;
    *out = (struct tensor){.name = input->spec->name};
    if (item->type == MIP_JSON) {
        st = mip_item_read_json(part->arena, item->data, "item", input->spec->datatype, input->dims,
                                part->source->limits, out, err);
    } else if (item->type == MIP_TEXT) {
        st = mip_item_read_text(part->arena, item->data, "item", input->spec->datatype, input->dims,
                                part->source->limits, out, err);
    } else if (item->type == MIP_IMAGE) {
        st = read_picture(part, item->data, input, out, err);
    } else {
        st = error_set(err, ST_UNSUPPORTED,
                       "expected an item of type 1 (TEXT), 2 (JSON) or 3 (IMAGE), got %" PRIu32,
                       item->type);
    }
    if (st != ST_OK && st != ST_NO_MEMORY) {
        char name[TENSOR_NAME_TEXT_BYTES];
        error_prefix(err, "batch element %zu, input %s", part->first + part->n,
                     tensor_name_print(input->spec->name, name));
    }
    return st;
}

/* ---- room ------------------------------------------------------------------------------------ */

static bool make_pieces(struct mip_part *part, struct mip_part_input *input, size_t n) {
    if (n <= input->cap_pieces - input->n_pieces) {
        return true;
    }
    size_t cap = input->cap_pieces * 2 + FIRST_PIECES;
    struct piece *pieces = arena_realloc(
        part->arena, input->pieces, input->cap_pieces * sizeof(*pieces), cap * sizeof(*pieces));
    if (!pieces) {
        return false;
    }
    input->pieces = pieces;
    input->cap_pieces = cap;
    return true;
}

/* Room for the pictures of all elements that are still to come; where memory is short the part will
 * have fewer. */
static bool make_slots(struct mip_part *part, struct mip_part_input *input, size_t n_bytes) {
    size_t n = part->capacity - part->n, total;
    while (n > 0 && !input->slots) {
        if (checked_mul(n, n_bytes, &total)) {
            input->slots = arena_alloc_aligned(part->arena, total, 64);
        }
        input->n_slots = n;
        n /= 2;
    }
    if (!input->slots) {
        return false;
    }
    part->capacity = part->n + input->n_slots;
    return true;
}

static bool make_picture(struct mip_part *part, size_t index) {
    struct mip_part_input *input = &part->inputs[index];
    if (!input->slots &&
        !make_slots(part, input, part->source->plan->inputs[index].picture_bytes)) {
        return false;
    }
    struct mip_part_picture *picture = arena_calloc(part->arena, 1, sizeof(*picture));
    if (!picture) {
        return false;
    }
    picture->part = part;
    picture->element = part->first + part->n;
    picture->input = index;
    picture->next = part->pictures;
    picture->done = true; /* it has not begun */
    part->pictures = picture;
    return true;
}

/* Everything that can fail happens before anything is the part's. */
static enum status make_room(struct mip_part *part, struct error *err) {
    for (size_t i = 0; i < part->source->infer->n_inputs; i++) {
        struct mip_part_input *input = &part->inputs[i];
        size_t n_bytes;
        bool decoded = is_decoded(part, i);
        if (!make_pieces(part, input, decoded ? 1 : part->fresh[i].n_pieces) ||
            (decoded && !make_picture(part, i)) ||
            !checked_add(input->n_bytes, part->fresh[i].n_bytes, &n_bytes)) {
            return no_memory(part, err);
        }
    }
    return ST_OK;
}

/* ---- the part's own -------------------------------------------------------------------------- */

static void on_picture(struct picture_job *job) {
    struct mip_part_picture *picture =
        (struct mip_part_picture *)((char *)job - offsetof(struct mip_part_picture, job));
    struct mip_part *part = picture->part;
    picture->done = true;
    part->n_decoding--;
    if (job->error.status != ST_OK && part->error.status == ST_OK) {
        char name[TENSOR_NAME_TEXT_BYTES];
        part->error = job->error;
        error_prefix(
            &part->error, "batch element %zu, input %s", picture->element,
            tensor_name_print(part->source->plan->spec->inputs[picture->input].name, name));
    }
    part->source->moved(part);
}

/* Returns: where the picture will be. */
static void *begin_picture(struct mip_part *part, size_t index) {
    const struct mip_input *plan = &part->source->plan->inputs[index];
    struct mip_part_input *input = &part->inputs[index];
    struct mip_part_picture *picture = part->pictures;
    while (picture->input != index || picture->element != part->first + part->n) {
        picture = picture->next;
    }
    void *slot = input->slots + input->n_used++ * plan->picture_bytes;
    picture->done = false;
    picture->job = (struct picture_job){.file = item_at(part, index)->data,
                                        .plan = &plan->picture,
                                        .out = slot,
                                        .worker = part->source->worker,
                                        .done = on_picture};
    part->n_decoding++;
    picture_submit(part->source->pictures, &picture->job);
    return slot;
}

/* A picture that lies right behind the one before it makes one piece with it. */
static void add_piece(struct mip_part_input *input, const char *data, size_t n_bytes) {
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

static void take(struct mip_part *part) {
    for (size_t i = 0; i < part->source->infer->n_inputs; i++) {
        struct mip_part_input *input = &part->inputs[i];
        const struct tensor *fresh = &part->fresh[i];
        if (part->n == 0) {
            input->shape = fresh->shape;
        }
        if (is_decoded(part, i)) {
            add_piece(input, begin_picture(part, i), fresh->n_bytes);
            continue;
        }
        for (size_t p = 0; p < fresh->n_pieces; p++) {
            input->pieces[input->n_pieces++] = fresh->pieces[p];
        }
        input->n_bytes += fresh->n_bytes;
    }
    part->n++;
}

static bool fits_before(const struct mip_part *part) {
    for (size_t i = 0; part->n > 0 && i < part->source->infer->n_inputs; i++) {
        if (!shape_eq(part->inputs[i].shape, part->fresh[i].shape)) {
            return false;
        }
    }
    return true;
}

enum status mip_part_take(struct mip_part *part, bool *taken, struct error *err) {
    enum status st = ST_OK;
    *taken = false;
    for (size_t i = 0; i < part->source->infer->n_inputs && st == ST_OK; i++) {
        st = read_item(part, i, err);
    }
    if (st != ST_OK || !fits_before(part)) {
        return st;
    }
    st = make_room(part, err);
    if (st == ST_OK) {
        take(part);
        *taken = true;
    }
    return st;
}
