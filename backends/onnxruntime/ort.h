/* The ONNX Runtime library, once per process. Every API call that can fail is checked by ort_check,
 * which converts the library's error to our status and text. */
#ifndef SLUICE_ONNXRUNTIME_ORT_H
#define SLUICE_ONNXRUNTIME_ORT_H

#include <stddef.h>

#include <onnxruntime_c_api.h>

#include "common/text.h"
#include "onnxruntime/memory.h"
#include "sluice/backend.h"

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
/* Loads the library (library.h) and starts it. Owns: everything in *ort, until the process exits:
 * ONNX Runtime's threads and statics do not survive their environment. Returns: not SLUICE_OK when
 * no library could be loaded, or it fails; it may be called again then. */
sluice_status ort_init(struct ort *ort, sluice_error *error);

/* Checks the result of a call and frees it; NULL is success. `doing` begins the text: "the model
 * could not be loaded". Returns: SLUICE_OK, or the corresponding status. Thread: any. */
sluice_status ort_check(const struct ort *ort, OrtStatus *result, const char *doing,
                        sluice_error *error);

/* The same for the result of Run. An operator that fails is SLUICE_INVALID_ARGUMENT: on the CPU
 * operators fail because of the shapes and values that they get. Memory that was not allocated
 * is SLUICE_TOO_LARGE over the limit of memory_begin_run, else SLUICE_NO_MEMORY. */
sluice_status ort_check_run(const struct ort *ort, OrtStatus *result, sluice_error *error);

#endif
