/* An inference request and its response, in the form that every protocol, the scheduler and every
 * backend share. Sans I/O, without threads. */
#ifndef SLUICE_CORE_TENSOR_INFER_H
#define SLUICE_CORE_TENSOR_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/param.h"
#include "core/tensor/tensor.h"

/* A range in a shared-memory region of the client, where a tensor's bytes are read from or written
 * to. */
struct infer_region {
    struct str name; /* the registered name; ptr NULL: the tensor is in no region */
    uint64_t offset, n_bytes;
};

struct infer_input {
    struct tensor tensor;
    struct params params;
    struct infer_region region; /* the frontend copies it before infer_check sees the tensor */
    size_t spec;                /* index among the model's inputs; set by infer_check */
    /* BYTES and BOOL: the server has checked this many elements of the tensor, which infer_check
     * then does not look at again if it has as many. 0: none */
    uint64_t n_checked;
};

struct infer_requested_output { /* an output that the client requested by name */
    struct str name;
    struct params params;
    struct infer_region region;
    uint64_t n_classes; /* the number of its top classes to return, as text; 0: the output itself */
    size_t spec;        /* index among the model's outputs; set by infer_check */
};

struct infer_request {
    struct arena *arena; /* owns everything below that is not in the received body */
    struct str id;       /* empty: none */
    struct params params;
    struct infer_input *inputs;
    size_t n_inputs;
    struct infer_requested_output *wanted; /* none: all outputs, in the model's order */
    size_t n_wanted;
    uint64_t batch; /* the first dimension where the model batches, else 1; set by infer_check */
    bool params_are_opaque; /* priority and timeout among them are not interpreted */
    uint64_t deadline_ns;   /* on the monotonic clock; 0: none */
};

/* The id and the parameters are copied and printed on the worker, whose time they must not take. */
enum { INFER_MAX_ID_BYTES = 1 << 20, INFER_MAX_PARAMS = 10000 };

/* Checks that the request fits the model: the limits above, names, counts, duplicates, datatypes,
 * ranks and dimensions, one batch size for all inputs and within max_batch_size, byte sizes, BYTES
 * framing, BOOL bytes 0 or 1. Fills `spec` of inputs and wanted outputs, and `batch`. When it
 * returns ST_OK, every size that a backend will see was checked. Returns: ST_BAD_FIELD,
 * ST_BAD_INPUTS, ST_BAD_DATATYPE, ST_BAD_SHAPE, ST_BAD_DATA, ST_NO_MEMORY. */
enum status infer_check(struct infer_request *request, const struct model_spec *model,
                        struct error *err) SLUICE_MUST_USE;

/* Aligns the bytes of every input to its element: a piece that is not aligned, or whose last
 * element straddles two pieces, is copied into the arena and counted (METRIC_MISALIGNED_TOTAL,
 * METRIC_COPIED_BYTES_TOTAL). */
enum status infer_align_copy(struct infer_request *request, struct error *err) SLUICE_MUST_USE;

/* The response. Outputs are in the order of `wanted`, or the model's order when none were requested
 * by name; a model may leave some out. Their bytes belong to the backend until
 * infer_response_release. */
struct infer_response {
    struct error error; /* status ST_OK: the rest is filled */
    struct params params;
    struct tensor *outputs;
    size_t n_outputs;
    const uint32_t *places; /* of each output; NULL: none is left out. See infer_response_place */
    /* Returns the outputs' bytes to the backend. Called on any thread. May be NULL. */
    void (*release)(void *user);
    void *user;
};

/* Calls `release` once. Idempotent. */
void infer_response_release(struct infer_response *response);

/* The place of output `i` in the request's `wanted`, or among the model's outputs where the request
 * names none. */
static inline size_t infer_response_place(const struct infer_response *response, size_t i) {
    return response->places ? response->places[i] : i;
}

#endif
