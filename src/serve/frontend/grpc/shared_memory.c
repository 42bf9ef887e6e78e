/* The system shared memory extension over gRPC; the methods for CUDA shared memory answer that it
 * is not supported. */
#include "codec/kserve/shared_memory.h"
#include "codec/kserve/grpc/v2_grpc.h"
#include "serve/frontend/grpc/method.h"
#include "serve/frontend/shm_registry.h"

static void add_region(void *user, const struct v2_shared_memory_region *region) {
    v2_grpc_shared_memory_encode(user, region);
}

static enum status answer_status(struct grpc_api *api, struct grpc_call *call, struct str message,
                                 struct buf *out, struct error *err) {
    struct str name, version;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK ? shm_visit_regions(api->options.services.shared, name, add_region, out, err)
                       : st;
}

static enum status answer_register(struct grpc_api *api, struct grpc_call *call, struct str message,
                                   struct buf *out, struct error *err) {
    struct v2_shared_memory_region region;
    (void)call, (void)out;
    enum status st = v2_grpc_shared_memory_register_decode(message, &region, err);
    return st == ST_OK ? shm_register_region(api->options.services.shared, &region, err) : st;
}

static enum status answer_unregister(struct grpc_api *api, struct grpc_call *call,
                                     struct str message, struct buf *out, struct error *err) {
    struct str name, version;
    (void)out;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK ? shm_unregister_region(api->options.services.shared, name, err) : st;
}

static enum status refuse_cuda(struct grpc_api *api, struct grpc_call *call, struct str message,
                               struct buf *out, struct error *err) {
    (void)api, (void)call, (void)message, (void)out;
    return error_set(err, ST_UNSUPPORTED, V2_CUDA_MEMORY_UNSUPPORTED);
}

const struct grpc_method_entry *grpc_memory_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
         .group = KEYS_CONTROL,
         .unary = answer_status},
        {.path = "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
         .group = KEYS_CONTROL,
         .unary = answer_register},
        {.path = "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
         .group = KEYS_CONTROL,
         .unary = answer_unregister},
        {.path = "/inference.GRPCInferenceService/CudaSharedMemoryStatus",
         .group = KEYS_CONTROL,
         .unary = refuse_cuda},
        {.path = "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
         .group = KEYS_CONTROL,
         .unary = refuse_cuda},
        {.path = "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
         .group = KEYS_CONTROL,
         .unary = refuse_cuda},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
