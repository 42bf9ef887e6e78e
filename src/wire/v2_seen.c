/* A table of few texts, each in a place of its own by its hash, and equal only when all their bytes
 * are. What a text means is a request in a block of memory; whoever sends it again gets a copy of
 * the block. */
#include "wire/v2_seen.h"

#include <string.h>

#include "base/hash.h"

/* ---- may it be kept? ------------------------------------------------------------------------- */

/* Is all that the tensor needs in the JSON and behind it, `at` there? */
static bool is_plain_input(const struct infer_input *input, const char *at) {
    const struct tensor *tensor = &input->tensor;
    return input->params.n == 0 && !input->region.name.ptr && tensor->n_pieces == 1 &&
           tensor->pieces[0].data == at;
}

static bool is_plain(const struct v2_request *request, const char *tensors) {
    const struct infer_request *infer = &request->infer;
    bool plain = infer->id.len == 0 && infer->params.n == 0;
    for (size_t i = 0; plain && i < infer->n_inputs; i++) {
        plain = is_plain_input(&infer->inputs[i], tensors);
        tensors += infer->inputs[i].tensor.n_bytes;
    }
    for (size_t i = 0; plain && i < infer->n_wanted; i++) {
        plain = infer->wanted[i].params.n == 0 && !infer->wanted[i].region.name.ptr;
    }
    return plain;
}

/* ---- into the block -------------------------------------------------------------------------- */

/* Returns: a copy of the bytes, NUL-terminated; NULL: the block is full. */
static void *put(struct v2_seen_one *one, const void *bytes, size_t n_bytes) {
    size_t n_aligned = (n_bytes + 1 + sizeof(max_align_t) - 1) / sizeof(max_align_t);
    char *place = one->block + one->n_used;
    if (n_aligned * sizeof(max_align_t) > sizeof(one->block) - one->n_used) {
        return NULL;
    }
    one->n_used += n_aligned * sizeof(max_align_t);
    if (n_bytes > 0) {
        memcpy(place, bytes, n_bytes);
    }
    place[n_bytes] = '\0';
    return place;
}

static bool put_text(struct v2_seen_one *one, struct str *text) {
    text->ptr = put(one, text->ptr, text->len);
    return text->ptr;
}

static bool put_input(struct v2_seen_one *one, struct tensor *tensor) {
    struct shape *shape = &tensor->shape;
    shape->dims = put(one, shape->dims, shape->rank * sizeof(shape->dims[0]));
    tensor->pieces = put(one, tensor->pieces, sizeof(tensor->pieces[0]));
    return shape->dims && tensor->pieces && put_text(one, &tensor->name);
}

static bool put_request(struct v2_seen_one *one, const struct v2_request *request) {
    struct infer_request *infer = &one->request.infer;
    size_t n_wanted = request->infer.n_wanted;
    one->n_used = 0;
    one->request = *request;
    infer->inputs = put(one, infer->inputs, infer->n_inputs * sizeof(infer->inputs[0]));
    infer->wanted = put(one, infer->wanted, n_wanted * sizeof(infer->wanted[0]));
    one->request.forms = put(one, request->forms, n_wanted * sizeof(request->forms[0]));
    bool fits = infer->inputs && infer->wanted && one->request.forms;
    for (size_t i = 0; fits && i < infer->n_inputs; i++) {
        fits = put_input(one, &infer->inputs[i].tensor);
    }
    for (size_t i = 0; fits && i < n_wanted; i++) {
        fits = put_text(one, &infer->wanted[i].name);
    }
    return fits;
}

static void keep(struct v2_seen_one *one, uint64_t hash, struct str body, size_t json_bytes,
                 const struct v2_request *request) {
    if (!is_plain(request, body.ptr + json_bytes)) {
        return;
    }
    if (one->asked_hash != hash) {
        one->asked_hash = hash;
        return;
    }
    one->json_bytes = put_request(one, request) ? json_bytes : 0;
    one->hash = hash;
    one->n_bytes = body.len - json_bytes;
    memcpy(one->json, body.ptr, json_bytes);
}

/* ---- out of it ------------------------------------------------------------------------------- */

static bool is_known(const struct v2_seen_one *one, uint64_t hash, struct str body,
                     size_t json_bytes) {
    return one->hash == hash && one->json_bytes == json_bytes &&
           one->n_bytes == body.len - json_bytes && memcmp(one->json, body.ptr, json_bytes) == 0;
}

/* Where something of one's block is in its copy. */
static void *there(const struct v2_seen_one *one, char *copy, const void *at) {
    return copy + ((const char *)at - one->block);
}

static void move_input(const struct v2_seen_one *one, char *copy, struct tensor *tensor,
                       const char *bytes) {
    struct piece *piece = there(one, copy, tensor->pieces);
    piece->data = bytes;
    tensor->pieces = piece;
    tensor->shape.dims = there(one, copy, tensor->shape.dims);
    tensor->name.ptr = there(one, copy, tensor->name.ptr);
}

/* Returns: false when out of memory. */
static bool recall(const struct v2_seen_one *one, struct arena *arena, struct str body,
                   struct v2_request *out) {
    char *copy = arena_alloc(arena, one->n_used);
    const char *bytes = body.ptr + one->json_bytes;
    if (!copy) {
        return false;
    }
    memcpy(copy, one->block, one->n_used);
    *out = one->request;
    struct infer_request *infer = &out->infer;
    infer->arena = arena;
    infer->inputs = there(one, copy, infer->inputs);
    infer->wanted = there(one, copy, infer->wanted);
    out->forms = there(one, copy, out->forms);
    for (size_t i = 0; i < infer->n_inputs; i++) {
        move_input(one, copy, &infer->inputs[i].tensor, bytes);
        bytes += infer->inputs[i].tensor.n_bytes;
    }
    for (size_t i = 0; i < infer->n_wanted; i++) {
        infer->wanted[i].name.ptr = there(one, copy, infer->wanted[i].name.ptr);
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum status v2_request_decode_seen(struct v2_seen *seen, struct arena *arena, struct str body,
                                   size_t json_bytes, const struct v2_limits *limits,
                                   struct v2_request *out, struct error *err) {
    if (!seen || json_bytes == 0 || json_bytes > body.len || json_bytes > V2_SEEN_JSON_BYTES) {
        return v2_request_decode(arena, body, json_bytes, limits, out, err);
    }
    uint64_t hash = hash_text(str_make(body.ptr, json_bytes), 0);
    struct v2_seen_one *one = &seen->ones[hash % V2_SEEN_MOST];
    if (is_known(one, hash, body, json_bytes) && recall(one, arena, body, out)) {
        seen->n_known++;
        return ST_OK;
    }
    enum status status = v2_request_decode(arena, body, json_bytes, limits, out, err);
    if (status == ST_OK) {
        keep(one, hash, body, json_bytes, out);
    }
    return status;
}
