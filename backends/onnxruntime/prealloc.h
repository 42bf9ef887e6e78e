/* Output values that are allocated before the run, for small numeric outputs whose shape follows
 * from the inputs. ONNX Runtime then neither allocates memory nor is queried for shapes, which
 * saves a twentieth of a small model's run. Only for a request that runs alone: the size of a batch
 * changes each time. */
#ifndef SLUICE_ONNXRUNTIME_PREALLOC_H
#define SLUICE_ONNXRUNTIME_PREALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "onnxruntime/ort.h"
#include "onnxruntime/signature.h"
#include "sluice/backend.h"

/* Larger outputs are not preallocated, because their bytes are copied: the next run reuses the
 * value. */
enum { PREALLOC_MAX_RANK = 8, PREALLOC_MAX_BYTES = 4096 };

/* A dimension: a number, or the dimension of an input. */
struct prealloc_dim {
    int64_t number; /* < 0: the input's dimension */
    uint32_t input, dim;
};

struct prealloc_output {
    size_t rank;
    int shape_known; /* all dimensions can be computed */
    struct prealloc_dim from[PREALLOC_MAX_RANK];
    OrtValue *value; /* over `bytes`, with the latest dimensions; NULL: none */
    int64_t dims[PREALLOC_MAX_RANK];
    size_t n_bytes;
    unsigned char bytes[PREALLOC_MAX_BYTES];
};

/* Per instance; {0}: none. */
struct prealloc {
    struct prealloc_output *outputs; /* by index of the model's outputs */
    size_t n;
};

/* Returns: 0 when out of memory. */
int prealloc_init(struct prealloc *prealloc, const struct signature *signature);
void prealloc_fini(struct prealloc *prealloc, const struct ort *ort);

/* Returns: the value for output `index` of a run of that request, which the instance's next run
 * overwrites; NULL: not preallocated. */
const struct prealloc_output *prealloc_find(struct prealloc *prealloc, const struct ort *ort,
                                            const struct signature *signature, size_t index,
                                            const sluice_request *request);

#endif
