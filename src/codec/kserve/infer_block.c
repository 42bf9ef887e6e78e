/* Arrays one behind the other, each where anything may be. */
#include "codec/kserve/infer_block.h"

#include <string.h>

bool infer_block_takes(const struct infer_request *request) {
    bool takes = request->id.len == 0 && request->params.n == 0;
    for (size_t i = 0; takes && i < request->n_inputs; i++) {
        const struct infer_input *input = &request->inputs[i];
        takes = input->params.n == 0 && !input->region.name.ptr && input->tensor.n_pieces == 1;
    }
    for (size_t i = 0; takes && i < request->n_wanted; i++) {
        takes = request->wanted[i].params.n == 0 && !request->wanted[i].region.name.ptr;
    }
    return takes;
}

/* ---- into it --------------------------------------------------------------------------------- */

static void *put(struct infer_block *block, const void *bytes, size_t n_bytes) {
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

bool infer_block_put_bytes(struct infer_block *block, const void **bytes, size_t n_bytes) {
    *bytes = put(block, *bytes, n_bytes);
    return *bytes;
}

bool infer_block_put_text(struct infer_block *block, struct str *text) {
    text->ptr = put(block, text->ptr, text->len);
    return text->ptr;
}

static bool put_input(struct infer_block *block, struct tensor *tensor, const struct piece *piece) {
    struct shape *shape = &tensor->shape;
    shape->dims = put(block, shape->dims, shape->rank * sizeof(shape->dims[0]));
    tensor->pieces = piece;
    return shape->dims && infer_block_put_text(block, &tensor->name);
}

bool infer_block_put(struct infer_block *block, struct infer_request *request) {
    static const struct piece none[INFER_BLOCK_INPUTS];
    size_t n = request->n_inputs, n_wanted = request->n_wanted;
    if (n > INFER_BLOCK_INPUTS) {
        return false;
    }
    request->id = STR("");
    request->params = (struct params){NULL, 0};
    request->inputs = put(block, request->inputs, n * sizeof(request->inputs[0]));
    request->wanted = put(block, request->wanted, n_wanted * sizeof(request->wanted[0]));
    const struct piece *pieces = put(block, none, n * sizeof(none[0]));
    bool fits = request->inputs && request->wanted && pieces;
    for (size_t i = 0; fits && i < n; i++) {
        fits = put_input(block, &request->inputs[i].tensor, &pieces[i]);
    }
    for (size_t i = 0; fits && i < n_wanted; i++) {
        fits = infer_block_put_text(block, &request->wanted[i].name);
    }
    return fits;
}

/* ---- out of it ------------------------------------------------------------------------------- */

char *infer_block_copy(const struct infer_block *block, struct arena *arena) {
    char *copy = arena_alloc(arena, block->n_used);
    return copy ? memcpy(copy, block->bytes, block->n_used) : NULL;
}

struct piece *infer_block_move(const struct infer_block *block, char *copy,
                               struct infer_request *request) {
    struct piece *first = NULL;
    request->inputs = infer_block_there(block, copy, request->inputs);
    request->wanted = infer_block_there(block, copy, request->wanted);
    for (size_t i = 0; i < request->n_inputs; i++) {
        struct tensor *tensor = &request->inputs[i].tensor;
        struct piece *piece = infer_block_there(block, copy, tensor->pieces);
        piece->n_bytes = tensor->n_bytes;
        tensor->pieces = piece;
        tensor->shape.dims = infer_block_there(block, copy, tensor->shape.dims);
        tensor->name.ptr = infer_block_there(block, copy, tensor->name.ptr);
        first = first ? first : piece;
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        struct str *name = &request->wanted[i].name;
        name->ptr = infer_block_there(block, copy, name->ptr);
    }
    return first;
}
