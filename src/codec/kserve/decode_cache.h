/* Decode cache: a client that repeats a request of the same shapes sends the same JSON before
 * other tensor bytes. The decoded structures are kept, and only the views of the body are made
 * anew. */
#ifndef SLUICE_CODEC_KSERVE_DECODE_CACHE_H
#define SLUICE_CODEC_KSERVE_DECODE_CACHE_H

#include "codec/kserve/infer_block.h"
#include "codec/kserve/request.h"

enum {
    V2_DECODE_CACHE_ENTRIES = 8,      /* texts in the cache */
    V2_DECODE_CACHE_JSON_BYTES = 512, /* longer texts are not cached */
};

/* A JSON text and its decoded request. */
struct v2_decode_cache_entry {
    uint64_t last_missed_hash; /* of the last text that missed: the second miss stores it */
    size_t json_bytes;         /* 0: empty entry */
    size_t n_bytes;            /* of the tensors that follow the JSON */
    struct v2_request request; /* without tensor bytes; its arrays and texts are in the block */
    struct infer_block block;
    char json[V2_DECODE_CACHE_JSON_BYTES];
};

/* For one thread and one set of limits. Zeroed memory is an empty cache. */
struct v2_decode_cache {
    uint64_t n_hits; /* requests that were not decoded again */
    struct v2_decode_cache_entry entries[V2_DECODE_CACHE_ENTRIES];
};

/* The same result as v2_request_decode in every case; `cache` may be NULL. Only requests whose
 * tensors are all binary, without an id and without parameters for the model, are cached. */
enum status v2_request_decode_cached(struct v2_decode_cache *cache, struct arena *arena,
                                     struct str body, size_t json_bytes,
                                     const struct json_limits *limits, struct v2_request *out,
                                     struct error *err) SLUICE_MUST_USE;

#endif
