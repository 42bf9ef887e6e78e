/* An inference: what is asked and what comes of it, in the one form in which every protocol, the
 * scheduler and every backend meet. It knows no wire and no thread. */
#ifndef SLUICE_CORE_TENSOR_INFER_H
#define SLUICE_CORE_TENSOR_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/param.h"
#include "core/tensor/tensor.h"

/* A part of a region of memory that the client shares, where a tensor's bytes are, or are to go. */
struct infer_region {
    struct str name; /* as it was registered; ptr NULL: the tensor is in no region */
    uint64_t offset, n_bytes;
};

struct infer_input {
    struct tensor tensor;
    struct params params;
    struct infer_region region; /* the front end copies it before infer_check sees the tensor */
    size_t spec;                /* index among the model's inputs; set by infer_check */
};

struct infer_requested_output { /* an output that was asked for by name */
    struct str name;
    struct params params;
    struct infer_region region;
    uint64_t n_classes; /* its best values, so many, are asked for, as text; 0: the output itself */
    size_t spec;        /* index among the model's outputs; set by infer_check */
};

struct infer_request {
    struct arena *arena; /* everything below lives in it, or in the received body */
    struct str id;       /* empty: none */
    struct params params;
    struct infer_input *inputs;
    size_t n_inputs;
    struct infer_requested_output *wanted; /* none: all outputs, in the model's order */
    size_t n_wanted;
    uint64_t batch; /* the first dimension where the model batches, else 1; set by infer_check */
    bool params_are_opaque; /* priority and timeout among them mean nothing here */
    uint64_t deadline_ns;   /* on the monotonic clock; 0: none */
};

/* Does the request fit the model? Names, counts, duplicates, datatypes, ranks and dimensions, one
 * batch size for all inputs and within max_batch_size, byte sizes, BYTES framing, BOOL bytes 0 or
 * 1. Fills `spec` of inputs and wanted outputs, and `batch`. Where it returns ST_OK, every size a
 *    backend
 * will see has been checked. */
enum status infer_check(struct infer_request *request, const struct model_spec *model,
                        struct error *err) __attribute__((warn_unused_result));

/* Makes every input's bytes aligned to its element: a piece that is not, or whose element straddles
 * two pieces, is copied into the arena and counted (METRIC_MISALIGNED_TOTAL,
 * METRIC_COPIED_BYTES_TOTAL). */
enum status infer_align_copy(struct infer_request *request, struct error *err)
    __attribute__((warn_unused_result));

/* What comes back. Outputs are in the order of `wanted`, or the model's order when none were named.
 * Their bytes belong to the backend until infer_response_release. */
struct infer_response {
    struct error error; /* status ST_OK: the rest is filled */
    struct params params;
    struct tensor *outputs;
    size_t n_outputs;
    /* Returns the outputs' bytes to the backend. Any thread. May be NULL. */
    void (*release)(void *cookie);
    void *cookie;
};

/* Calls `release` once and forgets it. Idempotent. */
void infer_response_release(struct infer_response *response);

#endif
