/* Decode cache for ModelInferRequest: as codec/kserve/decode_cache.h, over gRPC. Raw inputs are
 * not cached. */
#ifndef SLUICE_CODEC_KSERVE_GRPC_DECODE_CACHE_H
#define SLUICE_CODEC_KSERVE_GRPC_DECODE_CACHE_H

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/infer_block.h"

enum {
    V2_GRPC_DECODE_CACHE_ENTRIES = 8,      /* message heads in the cache */
    V2_GRPC_DECODE_CACHE_HEAD_BYTES = 512, /* longer heads are not cached */
};

/* The head of a message, up to the first byte of the first raw input, and the decoded request. */
struct v2_grpc_decode_cache_entry {
    uint64_t last_missed_hash;      /* of the last head that missed: the second miss stores it */
    size_t n_head;                  /* 0: empty entry */
    size_t n_bytes;                 /* of a whole message */
    struct v2_grpc_request request; /* without tensor bytes; its arrays and texts are in the
                                       block */
    struct infer_block block;
    char head[V2_GRPC_DECODE_CACHE_HEAD_BYTES];
};

/* For one thread and one set of limits. Zeroed memory is an empty cache. */
struct v2_grpc_decode_cache {
    uint64_t n_hits; /* requests that were not decoded again */
    struct v2_grpc_decode_cache_entry entries[V2_GRPC_DECODE_CACHE_ENTRIES];
};

/* The same result as v2_grpc_request_decode in every case; `cache` may be NULL. Only requests
 * with raw inputs that come last and are not empty, without an id and without parameters for the
 * model, are cached. */
enum status v2_grpc_request_decode_cached(struct v2_grpc_decode_cache *cache, struct arena *arena,
                                          struct str message, const struct json_limits *limits,
                                          struct v2_grpc_request *out,
                                          struct error *err) SLUICE_MUST_USE;

#endif
