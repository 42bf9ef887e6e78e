/* The ONNX Runtime library, once per process. ort.c finds and starts it and has its memory. Every
 * API call that can fail is checked by ort_check (errors.c), which converts the library's error to
 * our status and text. */
#ifndef SLUICE_ONNXRUNTIME_ORT_H
#define SLUICE_ONNXRUNTIME_ORT_H

#include <stddef.h>

#include <onnxruntime_c_api.h>

#include "common/text.h"
#include "sluice/backend.h"

/* The memory of runs: the process's heap, with a limit. ONNX Runtime's own arena keeps the largest
 * size that a model ever needed; the heap returns freed pages within seconds and is as fast
 * (docs/decisions/036-onnxruntime-uses-the-heap.md). */
struct memory {
    OrtAllocator allocator; /* first: ONNX Runtime passes it to the functions in it */
    OrtAllocator *heap;     /* the library's own: malloc, aligned; throws without memory */
    const OrtMemoryInfo *info;
};

struct ort {
    const sluice_host *host;
    const OrtApi *api;   /* NULL: not loaded */
    const char *version; /* of the loaded library, "1.31.1" */
    OrtEnv *env;
    OrtMemoryInfo *cpu;      /* for tensors over our own memory */
    OrtAllocator *allocator; /* for names and string tensors; malloc */
    struct memory memory;    /* of the sessions, but for those with an arena */
};

/* Sets *ort to a library that is not loaded. Thread: before others read the environment, which it
 * changes. */
void ort_prepare(struct ort *ort, const sluice_host *host);
/* Finds and loads the library and starts it; logs the file that was taken, and each that could not
 * be. No version is linked: any version with the API of the header serves. README.md ("Which ONNX
 * Runtime") has the places and their order. Owns: everything in *ort, until the process exits:
 * ONNX Runtime's threads and statics do not survive their environment. Returns: not SLUICE_OK when
 * no library could be loaded, or it fails; it may be called again then. */
sluice_status ort_init(struct ort *ort, sluice_error *error);

/* Limits the tensors that this thread allocates until memory_end_run: a larger one makes the run
 * fail before its memory is taken. 0: no limit. Threads of ONNX Runtime's pools are not limited:
 * they allocate only with execution_mode 1, and scratch memory of operators.
 * Thread: that of the run. */
void memory_begin_run(size_t max_bytes);
void memory_end_run(void);
/* Returns: the size that was over the limit in this thread's last run, with that limit; 0: none. */
size_t memory_refused_bytes(size_t *max_bytes);

/* Checks the result of a call and frees it; NULL is success. `doing` begins the text: "the model
 * could not be loaded". Returns: SLUICE_OK, or the corresponding status. Thread: any. */
sluice_status ort_check(const struct ort *ort, OrtStatus *result, const char *doing,
                        sluice_error *error);

/* The same for the result of Run. An operator that fails is SLUICE_INVALID_ARGUMENT: on the CPU
 * operators fail because of the shapes and values that they get. Memory that was not allocated
 * is SLUICE_TOO_LARGE over the limit of memory_begin_run, else SLUICE_NO_MEMORY. */
sluice_status ort_check_run(const struct ort *ort, OrtStatus *result, sluice_error *error);

/* The same for creating a session from the file `path`, in words that say what to do. */
sluice_status ort_check_load(const struct ort *ort, OrtStatus *result, const char *path,
                             sluice_error *error);

/* The same for registering a library of operators, the file `path`. */
sluice_status ort_check_library(const struct ort *ort, OrtStatus *result, const char *path,
                                sluice_error *error);

/* Writes a line of the library's log to the server's log; `param` is the struct ort. */
void ort_log(void *param, OrtLoggingLevel severity, const char *category, const char *logid,
             const char *code_location, const char *message);

#endif
