/* The messages of the system shared memory extension, as JSON and as protobuf.
 * Clause: reference, shared memory, 4. */
#ifndef SLUICE_CODEC_KSERVE_SHARED_MEMORY_H
#define SLUICE_CODEC_KSERVE_SHARED_MEMORY_H

#include "codec/kserve/request.h"
#include "core/base/json_writer.h"

/* The error text for a registration of GPU memory, and for the status of a region, none of which
 * can be registered. */
#define V2_CUDA_MEMORY_UNSUPPORTED "CUDA shared memory is not supported"
#define V2_CUDA_MEMORY_NO_REGION "no such CUDA shared memory region"

struct v2_shared_memory_region {
    struct str name; /* from the client; UTF-8 */
    struct str key;  /* of the shared-memory object */
    uint64_t offset, n_bytes;
};

/* Decodes the body of a registration: {"key", "byte_size", "offset"}; "offset" is optional. The
 * name is in the path. Returns: ST_BAD_JSON, ST_BAD_FIELD. Owns: in `arena`. */
enum status v2_shared_memory_register_decode(struct arena *arena, struct str body,
                                             const struct json_limits *limits,
                                             struct v2_shared_memory_region *out,
                                             struct error *err) SLUICE_MUST_USE;
/* SystemSharedMemoryRegisterRequest. Owns: views of `message`. */
enum status v2_grpc_shared_memory_register_decode(struct str message,
                                                  struct v2_shared_memory_region *out,
                                                  struct error *err) SLUICE_MUST_USE;
void v2_grpc_shared_memory_register_encode(struct buf *out,
                                           const struct v2_shared_memory_region *region);
/* Append an element of the JSON array of a status, an entry of SystemSharedMemoryStatusResponse. */
void v2_shared_memory_write(struct json_writer *json, const struct v2_shared_memory_region *region);
void v2_grpc_shared_memory_encode(struct buf *out, const struct v2_shared_memory_region *region);

#endif
