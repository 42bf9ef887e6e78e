/* Arrays appended one after the other, each with the alignment of max_align_t. */
#include "codec/kserve/infer_block.h"

#include <string.h>

bool infer_block_can_hold(const struct infer_request *request) {
    bool can_hold = request->id.len == 0 && request->params.n == 0;
    for (size_t i = 0; can_hold && i < request->n_inputs; i++) {
        const struct infer_input *input = &request->inputs[i];
        can_hold = input->params.n == 0 && !input->region.name.ptr && input->tensor.n_pieces == 1;
    }
    for (size_t i = 0; can_hold && i < request->n_wanted; i++) {
        can_hold = request->wanted[i].params.n == 0 && !request->wanted[i].region.name.ptr;
    }
    return can_hold;
}

/* ---- adding to a block ----------------------------------------------------------------------- */

static void *block_append(struct infer_block *block, const void *bytes, size_t n_bytes) {
    char *place = block->bytes + block->n_used;
    size_t n = (n_bytes + 1 + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (n > sizeof(block->bytes) - block->n_used) {
        return NULL;
    }
    block->n_used += n;
    if (n_bytes > 0) {
        memcpy(place, bytes, n_bytes);
    }
    place[n_bytes] = '\0';
    return place;
}

bool infer_block_add_bytes(struct infer_block *block, const void **bytes, size_t n_bytes) {
    *bytes = block_append(block, *bytes, n_bytes);
    return *bytes;
}

bool infer_block_add_text(struct infer_block *block, struct str *text) {
    text->ptr = block_append(block, text->ptr, text->len);
    return text->ptr;
}

static bool block_append_input(struct infer_block *block, struct tensor *tensor,
                               const struct piece *piece) {
    struct shape *shape = &tensor->shape;
    shape->dims = block_append(block, shape->dims, shape->rank * sizeof(shape->dims[0]));
    tensor->pieces = piece;
    return shape->dims && infer_block_add_text(block, &tensor->name);
}

bool infer_block_add_request(struct infer_block *block, struct infer_request *request) {
    static const struct piece none[INFER_BLOCK_INPUTS];
    size_t n = request->n_inputs, n_wanted = request->n_wanted;
    if (n > INFER_BLOCK_INPUTS) {
        return false;
    }
    request->id = STR("");
    request->params = (struct params){NULL, 0};
    request->inputs = block_append(block, request->inputs, n * sizeof(request->inputs[0]));
    request->wanted = block_append(block, request->wanted, n_wanted * sizeof(request->wanted[0]));
    const struct piece *pieces = block_append(block, none, n * sizeof(none[0]));
    bool fits = request->inputs && request->wanted && pieces;
    for (size_t i = 0; fits && i < n; i++) {
        fits = block_append_input(block, &request->inputs[i].tensor, &pieces[i]);
    }
    for (size_t i = 0; fits && i < n_wanted; i++) {
        fits = infer_block_add_text(block, &request->wanted[i].name);
    }
    return fits;
}

/* ---- copying a block ------------------------------------------------------------------------- */

char *infer_block_copy(const struct infer_block *block, struct arena *arena) {
    char *copy = arena_alloc(arena, block->n_used);
    return copy ? memcpy(copy, block->bytes, block->n_used) : NULL;
}

struct piece *infer_block_relocate_request(const struct infer_block *block, char *copy,
                                           struct infer_request *request) {
    struct piece *first = NULL;
    request->inputs = infer_block_relocate(block, copy, request->inputs);
    request->wanted = infer_block_relocate(block, copy, request->wanted);
    for (size_t i = 0; i < request->n_inputs; i++) {
        struct tensor *tensor = &request->inputs[i].tensor;
        struct piece *piece = infer_block_relocate(block, copy, tensor->pieces);
        piece->n_bytes = tensor->n_bytes;
        tensor->pieces = piece;
        tensor->shape.dims = infer_block_relocate(block, copy, tensor->shape.dims);
        tensor->name.ptr = infer_block_relocate(block, copy, tensor->name.ptr);
        first = first ? first : piece;
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        struct str *name = &request->wanted[i].name;
        name->ptr = infer_block_relocate(block, copy, name->ptr);
    }
    return first;
}
