/* As codec/kserve/decode_cache.c. The length of a message's head is unknown before the lookup,
 * so the slot is chosen by the model's name, which clients write first, and the length of the
 * message. */
#include "codec/kserve/grpc/decode_cache.h"

#include <string.h>

#include "codec/kserve/grpc/fields.h"
#include "codec/protobuf/pb.h"
#include "core/base/hash.h"

static uint64_t cache_slot_hash(struct str message) {
    struct pb_reader reader = pb_read(message);
    struct pb_field first = {.bytes = STR("")};
    bool named = pb_next(&reader, &first) && first.number == V2_GRPC_MODEL_NAME;
    return hash_text(named ? first.bytes : STR(""), message.len);
}

/* Advances from the end of one raw input to the next. Returns: whether the next one is present
 * and has exactly `n_bytes` bytes. */
static bool next_raw(struct pb_reader *reader, size_t n_bytes) {
    uint64_t tag, n;
    return pb_next_varint(reader, &tag) && tag == (V2_GRPC_RAW_INPUTS << 3 | PB_BYTES) &&
           pb_next_varint(reader, &n) && n == n_bytes && n <= (uint64_t)(reader->end - reader->at);
}

/* Locates the bytes of each input: the first follows the head, the others follow each other, and
 * the message ends with the last. Returns: false if the message is laid out otherwise. */
static bool find_raw(struct str message, size_t n_head, const struct infer_request *infer,
                     const char **at) {
    struct pb_reader reader = pb_read(message);
    reader.at += n_head;
    bool found = infer->n_inputs > 0;
    for (size_t i = 0; found && i < infer->n_inputs; i++) {
        size_t n_bytes = infer->inputs[i].tensor.n_bytes;
        found = n_bytes > 0 &&
                (i == 0 ? n_bytes <= (size_t)(reader.end - reader.at) : next_raw(&reader, n_bytes));
        if (found) {
            at[i] = reader.at;
            reader.at += n_bytes;
        }
    }
    return found && reader.at == reader.end;
}

/* ---- storing an entry ------------------------------------------------------------------------ */

static bool is_cacheable(struct str message, size_t n_head, const struct infer_request *infer) {
    const char *at[INFER_BLOCK_INPUTS] = {NULL};
    bool plain = n_head > 0 && n_head <= V2_GRPC_DECODE_CACHE_HEAD_BYTES &&
                 infer_block_can_hold(infer) && infer->n_inputs <= INFER_BLOCK_INPUTS &&
                 find_raw(message, n_head, infer, at);
    for (size_t i = 0; plain && i < infer->n_inputs; i++) {
        plain = infer->inputs[i].tensor.pieces[0].data == at[i];
    }
    return plain;
}

static void entry_store(struct v2_grpc_decode_cache_entry *entry, struct str message,
                        const struct v2_grpc_request *request) {
    size_t n_head = v2_grpc_raw_offset(message);
    if (!is_cacheable(message, n_head, &request->infer)) {
        return;
    }
    uint64_t hash = hash_text(str_make(message.ptr, n_head), message.len);
    if (entry->last_missed_hash != hash) {
        entry->last_missed_hash = hash;
        return;
    }
    entry->request = *request;
    entry->block.n_used = 0;
    bool fits = infer_block_add_request(&entry->block, &entry->request.infer) &&
                infer_block_add_text(&entry->block, &entry->request.model) &&
                infer_block_add_text(&entry->block, &entry->request.version);
    entry->n_head = fits ? n_head : 0;
    entry->n_bytes = message.len;
    memcpy(entry->head, message.ptr, n_head);
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static bool entry_matches(const struct v2_grpc_decode_cache_entry *entry, struct str message) {
    return entry->n_head > 0 && entry->n_bytes == message.len &&
           memcmp(entry->head, message.ptr, entry->n_head) == 0;
}

/* Returns: false if the inputs are not where they were, or out of memory. */
static bool entry_load(const struct v2_grpc_decode_cache_entry *entry, struct arena *arena,
                       struct str message, struct v2_grpc_request *out) {
    const char *at[INFER_BLOCK_INPUTS] = {NULL};
    char *copy = find_raw(message, entry->n_head, &entry->request.infer, at)
                     ? infer_block_copy(&entry->block, arena)
                     : NULL;
    if (!copy) {
        return false;
    }
    *out = entry->request;
    out->infer.arena = arena;
    out->model.ptr = infer_block_relocate(&entry->block, copy, out->model.ptr);
    out->version.ptr = infer_block_relocate(&entry->block, copy, out->version.ptr);
    struct piece *pieces = infer_block_relocate_request(&entry->block, copy, &out->infer);
    for (size_t i = 0; i < out->infer.n_inputs; i++) {
        pieces[i].data = at[i];
    }
    return true;
}

enum status v2_grpc_request_decode_cached(struct v2_grpc_decode_cache *cache, struct arena *arena,
                                          struct str message, const struct json_limits *limits,
                                          struct v2_grpc_request *out, struct error *err) {
    if (!cache || message.len == 0) {
        return v2_grpc_request_decode(arena, message, limits, out, err);
    }
    struct v2_grpc_decode_cache_entry *entry =
        &cache->entries[cache_slot_hash(message) % V2_GRPC_DECODE_CACHE_ENTRIES];
    if (entry_matches(entry, message) && entry_load(entry, arena, message, out)) {
        cache->n_hits++;
        return ST_OK;
    }
    enum status st = v2_grpc_request_decode(arena, message, limits, out, err);
    if (st == ST_OK) {
        entry_store(entry, message, out);
    }
    return st;
}
