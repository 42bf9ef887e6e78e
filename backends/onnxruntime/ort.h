/* ONNX Runtime itself, as the backend holds it: once per process. Every call of its API that can
 * fail goes through ort_check, which makes a status and a sentence of our interface from theirs. */
#ifndef SLUICE_ONNXRUNTIME_ORT_H
#define SLUICE_ONNXRUNTIME_ORT_H

#include <stddef.h>

#include <onnxruntime_c_api.h>

#include "common/text.h"
#include "sluice/backend.h"

struct ort {
    const sluice_host *host;
    const OrtApi *api;
    const char *version; /* of the library that was loaded, "1.31.1" */
    OrtEnv *env;
    OrtMemoryInfo *cpu;      /* describes memory that is ours */
    OrtAllocator *allocator; /* for names and string tensors; plain malloc */
};

/* Owns: everything in *ort, for the life of the process; ONNX Runtime's own threads and statics
 * don't survive their environment well. Returns: not SLUICE_OK when the library is older than the
 * header, or fails. */
sluice_status ort_init(struct ort *ort, const sluice_host *host, sluice_error *error);

/* What became of a call: takes `result`, which is NULL when all went well. `doing` begins the
 * sentence: "the model could not be loaded". Returns: SLUICE_OK, or the status that the library's
 * code stands for. Thread: any. */
sluice_status ort_check(const struct ort *ort, OrtStatus *result, const char *doing,
                        sluice_error *error);

#endif
