/* What a run gave: ONNX Runtime's output values, seen as bytes, until the last answer made of them
 * has been sent. */
#ifndef SLUICE_ONNXRUNTIME_RESULTS_H
#define SLUICE_ONNXRUNTIME_RESULTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "onnxruntime/inputs.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

enum { RESULT_MAX_RANK = 64 };

struct result {
    OrtValue *value;      /* NULL when its bytes were copied */
    unsigned char *block; /* the copy, else NULL */
    const struct datatype *datatype;
    int64_t dims[RESULT_MAX_RANK]; /* dims[0] counts rows when the batch is split */
    size_t rank;
    const unsigned char *next; /* bytes that were not given to a request yet */
    size_t n_bytes;            /* from `next` on */
    size_t n_row_elements;     /* in one row; when the batch is split */
};

/* Shared by the answers of a batch; one allocation. */
struct results {
    const struct ort *ort;
    atomic_size_t n_refs;
    size_t n;
    struct result items[];
};

/* What is known of a run that ended well. */
struct outcome {
    OrtValue **values;                      /* `n` that Run made */
    const sluice_tensor_info *const *infos; /* how the model describes each */
    size_t n;
    size_t n_requests;
    uint64_t n_rows;             /* over all requests */
    const struct gather *gather; /* where the inputs may lie */
};

/* Looks at the values. With several requests each must have n_rows as its first dimension. Bytes
 * that lie in `gather` are copied: it is used again before the answers are sent.
 * Owns: takes the values, also on failure. On success *out holds n_requests references. */
sluice_status results_make(const struct ort *ort, const struct outcome *outcome,
                           struct results **out, sluice_error *error);

/* Takes the next `n_rows` rows of a result, or all of it when the batch is not split (`split` 0).
 * Sets data, n_bytes, dims (of the result: read before the next call), rank and datatype of
 * *output. */
void result_take(struct result *result, int split, uint64_t n_rows, sluice_output *output);

/* Drops a reference; a `release` of the interface. Thread: any. */
void results_release(void *cookie);

#endif
