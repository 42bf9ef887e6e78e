/* ModelInferRequests that were there before, but for their raw inputs: as
 * codec/kserve/decode_cache.h, over gRPC. */
#ifndef SLUICE_CODEC_KSERVE_GRPC_DECODE_CACHE_H
#define SLUICE_CODEC_KSERVE_GRPC_DECODE_CACHE_H

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/infer_block.h"

enum {
    V2_GRPC_DECODE_CACHE_ENTRIES = 8,      /* beginnings that are kept */
    V2_GRPC_DECODE_CACHE_HEAD_BYTES = 512, /* longer ones are not */
};

/* How messages begin, up to the first byte of the first raw input, and what they mean. */
struct v2_grpc_decode_cache_entry {
    uint64_t last_missed_hash;      /* of the last that was not known: who comes twice is
                                             kept */
    size_t n_head;                  /* 0: nothing is kept */
    size_t n_bytes;                 /* of a whole message */
    struct v2_grpc_request request; /* without bytes; its arrays and texts are in the block */
    struct infer_block block;
    char head[V2_GRPC_DECODE_CACHE_HEAD_BYTES];
};

/* One thread's, and of one set of limits. Zeroed memory has seen nothing. */
struct v2_grpc_decode_cache {
    uint64_t n_hits; /* requests that were not decoded again */
    struct v2_grpc_decode_cache_entry entries[V2_GRPC_DECODE_CACHE_ENTRIES];
};

/* The same as v2_grpc_request_decode, in every answer; `seen` may be NULL. Kept are requests with
 * raw inputs, which come last and are none of them empty, without an id and without parameters for
 * the model. */
enum status v2_grpc_request_decode_cached(struct v2_grpc_decode_cache *cache, struct arena *arena,
                                          struct str message, const struct json_limits *limits,
                                          struct v2_grpc_request *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
