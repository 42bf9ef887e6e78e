/* Values for outputs that are there before the run: small ones of numbers, whose shape follows from
 * the inputs'. ONNX Runtime then takes no memory for them, and nobody has to ask it for their
 * shapes: a twentieth of what a run of a small model takes. For a request that runs alone; in a
 * batch, whose size is another each time, it is not worth it. */
#ifndef SLUICE_ONNXRUNTIME_EARLY_H
#define SLUICE_ONNXRUNTIME_EARLY_H

#include <stddef.h>
#include <stdint.h>

#include "onnxruntime/ort.h"
#include "onnxruntime/signature.h"
#include "sluice/backend.h"

/* Larger ones are not early: their bytes are copied, as the value serves the next run, too. */
enum { PREALLOC_MAX_RANK = 8, PREALLOC_MAX_BYTES = 4096 };

/* A dimension: a number, or that of an input. */
struct prealloc_dim {
    int64_t number; /* below 0: that of the input */
    uint32_t input, dim;
};

struct prealloc_output {
    size_t rank;
    int shape_known; /* all of its dimensions follow */
    struct prealloc_dim from[PREALLOC_MAX_RANK];
    OrtValue *value; /* over `bytes`, of the last dimensions there were; or NULL */
    int64_t dims[PREALLOC_MAX_RANK];
    size_t n_bytes;
    unsigned char bytes[PREALLOC_MAX_BYTES];
};

/* Of an instance; {0} has none. */
struct prealloc {
    struct prealloc_output *outputs; /* of the model's, by index */
    size_t n;
};

/* Returns: 0 when there is no memory. */
int prealloc_init(struct prealloc *prealloc, const struct signature *signature);
void prealloc_fini(struct prealloc *prealloc, const struct ort *ort);

/* The value for output `index` of a run of that request; its content is the instance's until the
 * next run. Returns: NULL where there is none. */
const struct prealloc_output *prealloc_find(struct prealloc *prealloc, const struct ort *ort,
                                            const struct signature *signature, size_t index,
                                            const sluice_request *request);

#endif
