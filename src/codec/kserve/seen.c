/* A table of few texts, each in a place of its own by its hash, and equal only when all their bytes
 * are. */
#include "codec/kserve/seen.h"

#include <string.h>

#include "core/base/hash.h"

/* ---- to be kept ------------------------------------------------------------------------------ */

/* Is all that it needs in the JSON, and behind it, from `tensors` to `end`? */
static bool is_plain(const struct infer_request *infer, const char *tensors, const char *end) {
    bool plain = infer_block_takes(infer);
    for (size_t i = 0; plain && i < infer->n_inputs; i++) {
        plain = infer->inputs[i].tensor.pieces[0].data == tensors;
        tensors += infer->inputs[i].tensor.n_bytes;
    }
    return plain && tensors == end;
}

static bool put(struct v2_seen_one *one) {
    struct v2_request *request = &one->request;
    const void *forms = request->forms;
    one->block.n_used = 0;
    bool fits = infer_block_put(&one->block, &request->infer) &&
                infer_block_put_bytes(&one->block, &forms,
                                      request->infer.n_wanted * sizeof(request->forms[0]));
    request->forms = forms;
    return fits;
}

static void keep(struct v2_seen_one *one, uint64_t hash, struct str body, size_t json_bytes,
                 const struct v2_request *request) {
    if (!is_plain(&request->infer, body.ptr + json_bytes, body.ptr + body.len)) {
        return;
    }
    if (one->asked_hash != hash) {
        one->asked_hash = hash;
        return;
    }
    one->request = *request;
    one->json_bytes = put(one) ? json_bytes : 0;
    one->n_bytes = body.len - json_bytes;
    memcpy(one->json, body.ptr, json_bytes);
}

/* ---- known again ----------------------------------------------------------------------------- */

static bool is_known(const struct v2_seen_one *one, struct str body, size_t json_bytes) {
    return one->json_bytes == json_bytes && one->n_bytes == body.len - json_bytes &&
           memcmp(one->json, body.ptr, json_bytes) == 0;
}

/* Returns: false when out of memory. */
static bool recall(const struct v2_seen_one *one, struct arena *arena, struct str body,
                   struct v2_request *out) {
    char *copy = infer_block_copy(&one->block, arena);
    const char *bytes = body.ptr + one->json_bytes;
    if (!copy) {
        return false;
    }
    *out = one->request;
    out->infer.arena = arena;
    out->forms = infer_block_there(&one->block, copy, out->forms);
    struct piece *pieces = infer_block_move(&one->block, copy, &out->infer);
    for (size_t i = 0; i < out->infer.n_inputs; i++) {
        pieces[i].data = bytes;
        bytes += pieces[i].n_bytes;
    }
    return true;
}

enum status v2_request_decode_seen(struct v2_seen *seen, struct arena *arena, struct str body,
                                   size_t json_bytes, const struct json_limits *limits,
                                   struct v2_request *out, struct error *err) {
    if (!seen || json_bytes == 0 || json_bytes > body.len || json_bytes > V2_SEEN_JSON_BYTES) {
        return v2_request_decode(arena, body, json_bytes, limits, out, err);
    }
    uint64_t hash = hash_text(str_make(body.ptr, json_bytes), 0);
    struct v2_seen_one *one = &seen->ones[hash % V2_SEEN_MOST];
    if (is_known(one, body, json_bytes) && recall(one, arena, body, out)) {
        seen->n_known++;
        return ST_OK;
    }
    enum status status = v2_request_decode(arena, body, json_bytes, limits, out, err);
    if (status == ST_OK) {
        keep(one, hash, body, json_bytes, out);
    }
    return status;
}
