/* The memory of runs: the process's heap, with a limit. ONNX Runtime's own arena keeps the largest
 * size that a model ever needed; the heap returns freed pages within seconds and is as fast
 * (docs/decisions/036-onnxruntime-uses-the-heap.md). */
#ifndef SLUICE_ONNXRUNTIME_MEMORY_H
#define SLUICE_ONNXRUNTIME_MEMORY_H

#include <stddef.h>

#include <onnxruntime_c_api.h>

struct memory {
    OrtAllocator allocator; /* first: ONNX Runtime passes it to the functions in it */
    OrtAllocator *heap;     /* the library's own: malloc, aligned; throws without memory */
    const OrtMemoryInfo *info;
};

/* `heap` and `info` are borrowed, as long as `memory` is used; it must not move then. */
void memory_init(struct memory *memory, OrtAllocator *heap, const OrtMemoryInfo *info);

/* Limits the tensors that this thread allocates until memory_end_run: a larger one makes the run
 * fail before its memory is taken. 0: no limit. Threads of ONNX Runtime's pools are not limited:
 * they allocate only with execution_mode 1, and scratch memory of operators.
 * Thread: that of the run. */
void memory_begin_run(size_t max_bytes);
void memory_end_run(void);
/* Returns: the size that was over the limit in this thread's last run, with that limit; 0: none. */
size_t memory_refused_bytes(size_t *max_bytes);

#endif
