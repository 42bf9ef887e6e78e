/* The inference request of KServe v2 over HTTP: a JSON object, optionally followed by the bytes of
 * the inputs that say `binary_data_size` (the binary tensor data extension). Bytes in, an
 * infer_request out whose binary tensors are views of the body. Knows no model: whether the request
 * fits one is infer_check's business. */
#ifndef SLUICE_CODEC_KSERVE_REQUEST_H
#define SLUICE_CODEC_KSERVE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/json/limits.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/infer.h"

enum v2_form { V2_FORM_DEFAULT, V2_FORM_JSON, V2_FORM_BINARY }; /* an output's own `binary_data` */

struct v2_request {
    struct infer_request infer;
    bool binary_default;       /* `binary_data_output`, or a raw request */
    const enum v2_form *forms; /* one per infer.wanted */
};

/* Does output i of the answer go to the client's shared memory instead of leaving with the
 * others? */
static inline bool v2_request_output_in_shared_memory(const struct v2_request *request, size_t i) {
    return i < request->infer.n_wanted && request->infer.wanted[i].region.name.ptr;
}

/* How the JSON part of a body is told apart from what follows. */
enum v2_header_kind { V2_HEADER_ABSENT, V2_HEADER_RAW, V2_HEADER_JSON };

/* Reads the value of Inference-Header-Content-Length: decimal digits only. `n_fields` is how many
 * such fields the head has. Returns: ST_BAD_FRAMING for signs, other bases, repeats, values over
 * 2^63-1. */
enum status v2_header_length_parse(size_t n_fields, struct str value, enum v2_header_kind *kind,
                                   uint64_t *json_bytes, struct error *err)
    __attribute__((warn_unused_result));

/* Decodes a body whose first `json_bytes` are JSON. `body` must stay as long as the request; the
 * tree is built in `arena`. Depth, the number of elements and the memory of the tree are bounded
 * before it is built. The sum of the binary sizes must be exactly what follows the JSON. Members
 * with other names are passed over, of equal names the first counts. `data` may be flat or nested
 * in any way: its elements are read in the order of the text and only their number is held against
 * the shape. Bare NaN, Infinity and -Infinity stand in the data of float datatypes and nowhere
 * else.
 * Returns: BAD_JSON with the offset; BAD_FIELD and others with the JSON path
 * ("inputs[0].shape[1]"). The clauses are binary-tensor-data "Binary Tensor Request" and the OIP's
 * inference request. */
enum status v2_request_decode(struct arena *arena, struct str body, size_t json_bytes,
                              const struct json_limits *limits, struct v2_request *out,
                              struct error *err) __attribute__((warn_unused_result));

#endif
