/* The system shared memory extension over gRPC, and that there is none for memory of GPUs. */
#include "codec/kserve/memory.h"
#include "codec/kserve/grpc/v2_grpc.h"
#include "serve/frontend/grpc/method.h"
#include "serve/frontend/shared.h"

static void add_region(void *cookie, const struct v2_memory_region *region) {
    v2_grpc_memory_print(cookie, region);
}

static enum status answer_status(struct grpc_api *api, struct grpc_call *call, struct str message,
                                 struct buf *out, struct error *err) {
    struct str name, version;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK ? shared_visit(api->options.shared, name, add_region, out, err) : st;
}

static enum status answer_register(struct grpc_api *api, struct grpc_call *call, struct str message,
                                   struct buf *out, struct error *err) {
    struct v2_memory_region region;
    (void)call, (void)out;
    enum status st = v2_grpc_memory_register_decode(message, &region, err);
    return st == ST_OK ? shared_register(api->options.shared, &region, err) : st;
}

static enum status answer_unregister(struct grpc_api *api, struct grpc_call *call,
                                     struct str message, struct buf *out, struct error *err) {
    struct str name, version;
    (void)out;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK ? shared_unregister(api->options.shared, name, err) : st;
}

static enum status refuse_cuda(struct grpc_api *api, struct grpc_call *call, struct str message,
                               struct buf *out, struct error *err) {
    (void)api, (void)call, (void)message, (void)out;
    return error_set(err, ST_UNSUPPORTED, V2_NO_CUDA);
}

const struct grpc_row *grpc_memory_rows(size_t *n) {
    static const struct grpc_row rows[] = {
        {.path = "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
         .group = KEYS_CONTROL,
         .answer = answer_status},
        {.path = "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
         .group = KEYS_CONTROL,
         .answer = answer_register},
        {.path = "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
         .group = KEYS_CONTROL,
         .answer = answer_unregister},
        {.path = "/inference.GRPCInferenceService/CudaSharedMemoryStatus",
         .group = KEYS_CONTROL,
         .answer = refuse_cuda},
        {.path = "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
         .group = KEYS_CONTROL,
         .answer = refuse_cuda},
        {.path = "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
         .group = KEYS_CONTROL,
         .answer = refuse_cuda},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
