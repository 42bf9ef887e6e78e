/* Requests whose JSON was there before. A client that asks the same of the same shapes again and
 * again sends the same JSON in front of other tensor bytes: what it means is kept, and only the
 * views of the body are made anew. */
#ifndef SLUICE_CODEC_KSERVE_DECODE_CACHE_H
#define SLUICE_CODEC_KSERVE_DECODE_CACHE_H

#include "codec/kserve/infer_block.h"
#include "codec/kserve/request.h"

enum {
    V2_DECODE_CACHE_ENTRIES = 8,      /* texts that are kept */
    V2_DECODE_CACHE_JSON_BYTES = 512, /* longer ones are not */
};

/* A text and what it means. */
struct v2_decode_cache_entry {
    uint64_t last_missed_hash; /* of the last that was not known: who comes twice is kept */
    size_t json_bytes;         /* 0: nothing is kept */
    size_t n_bytes;            /* of tensors, behind the JSON */
    struct v2_request request; /* without bytes; its arrays and texts are in the block */
    struct infer_block block;
    char json[V2_DECODE_CACHE_JSON_BYTES];
};

/* One thread's, and of one set of limits. Zeroed memory has seen nothing. */
struct v2_decode_cache {
    uint64_t n_hits; /* requests that were not decoded again */
    struct v2_decode_cache_entry entries[V2_DECODE_CACHE_ENTRIES];
};

/* The same as v2_request_decode, in every answer; `seen` may be NULL. Kept are requests whose
 * tensors are all behind the JSON, without an id and without parameters for the model. */
enum status v2_request_decode_cached(struct v2_decode_cache *cache, struct arena *arena,
                                     struct str body, size_t json_bytes,
                                     const struct json_limits *limits, struct v2_request *out,
                                     struct error *err) __attribute__((warn_unused_result));

#endif
