/* A small hash table of JSON texts, one entry a slot. A text matches only if all its bytes are
 * equal. */
#include "codec/kserve/decode_cache.h"

#include <string.h>

#include "core/base/hash.h"

/* ---- storing an entry ------------------------------------------------------------------------ */

/* Is the cached part complete: are all tensors binary and their bytes exactly `tensors` to
 * `end`? */
static bool is_cacheable(const struct infer_request *infer, const char *tensors, const char *end) {
    bool plain = infer_block_can_hold(infer);
    for (size_t i = 0; plain && i < infer->n_inputs; i++) {
        plain = infer->inputs[i].tensor.pieces[0].data == tensors;
        tensors += infer->inputs[i].tensor.n_bytes;
    }
    return plain && tensors == end;
}

static bool entry_add_request(struct v2_decode_cache_entry *entry) {
    struct v2_request *request = &entry->request;
    const void *forms = request->forms;
    entry->block.n_used = 0;
    bool fits = infer_block_add_request(&entry->block, &request->infer) &&
                infer_block_add_bytes(&entry->block, &forms,
                                      request->infer.n_wanted * sizeof(request->forms[0]));
    request->forms = forms;
    return fits;
}

static void entry_store(struct v2_decode_cache_entry *entry, uint64_t hash, struct str body,
                        size_t json_bytes, const struct v2_request *request) {
    if (!is_cacheable(&request->infer, body.ptr + json_bytes, body.ptr + body.len)) {
        return;
    }
    if (entry->last_missed_hash != hash) {
        entry->last_missed_hash = hash;
        return;
    }
    entry->request = *request;
    entry->json_bytes = entry_add_request(entry) ? json_bytes : 0;
    entry->n_bytes = body.len - json_bytes;
    memcpy(entry->json, body.ptr, json_bytes);
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static bool entry_matches(const struct v2_decode_cache_entry *entry, struct str body,
                          size_t json_bytes) {
    return entry->json_bytes == json_bytes && entry->n_bytes == body.len - json_bytes &&
           memcmp(entry->json, body.ptr, json_bytes) == 0;
}

/* Returns: false when out of memory. */
static bool entry_load(const struct v2_decode_cache_entry *entry, struct arena *arena,
                       struct str body, struct v2_request *out) {
    char *copy = infer_block_copy(&entry->block, arena);
    const char *bytes = body.ptr + entry->json_bytes;
    if (!copy) {
        return false;
    }
    *out = entry->request;
    out->infer.arena = arena;
    out->forms = infer_block_relocate(&entry->block, copy, out->forms);
    struct piece *pieces = infer_block_relocate_request(&entry->block, copy, &out->infer);
    for (size_t i = 0; i < out->infer.n_inputs; i++) {
        pieces[i].data = bytes;
        bytes += pieces[i].n_bytes;
    }
    return true;
}

enum status v2_request_decode_cached(struct v2_decode_cache *cache, struct arena *arena,
                                     struct str body, size_t json_bytes,
                                     const struct json_limits *limits, struct v2_request *out,
                                     struct error *err) {
    if (!cache || json_bytes == 0 || json_bytes > body.len ||
        json_bytes > V2_DECODE_CACHE_JSON_BYTES) {
        return v2_request_decode(arena, body, json_bytes, limits, out, err);
    }
    uint64_t hash = hash_text(str_make(body.ptr, json_bytes), 0);
    struct v2_decode_cache_entry *entry = &cache->entries[hash % V2_DECODE_CACHE_ENTRIES];
    if (entry_matches(entry, body, json_bytes) && entry_load(entry, arena, body, out)) {
        cache->n_hits++;
        return ST_OK;
    }
    enum status status = v2_request_decode(arena, body, json_bytes, limits, out, err);
    if (status == ST_OK) {
        entry_store(entry, hash, body, json_bytes, out);
    }
    return status;
}
