/* A tensor: name, datatype, shape and a view of its bytes, which are little-endian, row-major,
 * without padding (BYTES: see bytes.h). The bytes may be in several pieces. Nothing is owned. */
#ifndef SLUICE_CORE_TENSOR_TENSOR_H
#define SLUICE_CORE_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/piece.h"
#include "core/base/quote.h"
#include "core/base/str.h"
#include "core/tensor/datatype.h"
#include "core/tensor/shape.h"

struct tensor {
    struct str name;
    enum datatype datatype;
    struct shape shape;
    const struct piece *pieces; /* borrowed; may be NULL when n_bytes is 0 */
    size_t n_pieces;
    size_t n_bytes; /* sum over the pieces */
};

/* A model's specification of one input or output. `shape` is the full shape as clients see it: with
 * a leading -1 where the model batches (max_batch_size > 0). -1 is any size. */
struct tensor_spec {
    struct str name;
    enum datatype datatype;
    struct shape shape;
    bool optional; /* inputs only: may be left out of a request */
    /* Where `shape` was read, for messages, such as "dims in config.pbtxt, line 4"; ptr NULL:
     * unknown. */
    struct str origin;
};

/* A served model version, as the protocols see it. Immutable once published. */
struct model_spec {
    struct str name;
    uint64_t version;
    struct str version_text; /* the same in decimal */
    struct str platform;     /* "onnxruntime_onnx", or the backend's name */
    uint64_t max_batch_size; /* 0: the model has no batch dimension */
    const struct tensor_spec *inputs;
    size_t n_inputs;
    const struct tensor_spec *outputs;
    size_t n_outputs;
    bool decoupled;   /* 0 or more responses to a request */
    bool is_ensemble; /* its outputs are other models', with whose responses their memory counts */
    /* Why max_batch_size is what it is, for messages; ptr NULL: unknown. */
    struct str batch_origin;
};

/* Enough for the model's name and the origin of a shape; longer ones are cut. */
enum { ORIGIN_TEXT_BYTES = 256 };
/* Prints what a message about a wrong shape says of the expected one: ` (model "m": dims in
 * config.pbtxt, line 4)`, NUL-terminated. Returns: `out`. */
const char *tensor_origin_print(const struct model_spec *model, struct str origin,
                                char out[ORIGIN_TEXT_BYTES]);

/* Returns: the index, or SIZE_MAX. */
size_t tensor_spec_find(const struct tensor_spec *specs, size_t n, struct str name);

#endif
