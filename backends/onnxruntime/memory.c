/* An allocator over the library's own. ONNX Runtime does not check the pointer that an allocator
 * returns; it expects an exception, which C cannot throw. So a size over the limit becomes a
 * request to the library's allocator that no heap can satisfy, and that one throws std::bad_alloc
 * through this file, which has nothing to clean up. */
#include "onnxruntime/memory.h"

#include <stdint.h>

enum { TENSOR_ALIGNMENT = 256 }; /* ONNX Runtime rounds the size of a tensor up */

static const size_t IMPOSSIBLE_BYTES = SIZE_MAX / 4;

/* The allocator's functions get no argument that identifies the run. */
static _Thread_local struct run_limit {
    size_t max_bytes; /* 0: no limit */
    size_t rounded_bytes;
    size_t refused_bytes;
} run_limit;

static void *memory_alloc(OrtAllocator *allocator, size_t n_bytes) {
    const struct memory *memory = (const struct memory *)(void *)allocator;
    struct run_limit *limit = &run_limit;
    if (limit->max_bytes > 0 && n_bytes > limit->rounded_bytes) {
        limit->refused_bytes = n_bytes;
        return memory->heap->Alloc(memory->heap, IMPOSSIBLE_BYTES);
    }
    return memory->heap->Alloc(memory->heap, n_bytes);
}

/* Weights: the size of a model is not a client's choice. */
static void *memory_reserve(OrtAllocator *allocator, size_t n_bytes) {
    const struct memory *memory = (const struct memory *)(void *)allocator;
    return memory->heap->Alloc(memory->heap, n_bytes);
}

static void memory_free(OrtAllocator *allocator, void *ptr) {
    const struct memory *memory = (const struct memory *)(void *)allocator;
    memory->heap->Free(memory->heap, ptr);
}

static const OrtMemoryInfo *memory_info(const OrtAllocator *allocator) {
    return ((const struct memory *)(const void *)allocator)->info;
}

void memory_init(struct memory *memory, OrtAllocator *heap, const OrtMemoryInfo *info) {
    *memory = (struct memory){
        .allocator = {.version = ORT_API_VERSION,
                      .Alloc = memory_alloc,
                      .Free = memory_free,
                      .Info = memory_info,
                      .Reserve = memory_reserve},
        .heap = heap,
        .info = info,
    };
}

void memory_begin_run(size_t max_bytes) {
    size_t rounded = max_bytes > SIZE_MAX - TENSOR_ALIGNMENT
                         ? max_bytes
                         : (max_bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
    run_limit = (struct run_limit){.max_bytes = max_bytes, .rounded_bytes = rounded};
}

void memory_end_run(void) {
    run_limit.rounded_bytes = SIZE_MAX;
}

size_t memory_refused_bytes(size_t *max_bytes) {
    *max_bytes = run_limit.max_bytes;
    return run_limit.refused_bytes;
}
