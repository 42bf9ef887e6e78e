/* The inference request of KServe v2 over HTTP: a JSON object, optionally followed by the bytes
 * of the inputs with a `binary_data_size` (the binary tensor data extension). Binary tensors are
 * views of the body. infer_check checks the request against the model. */
#ifndef SLUICE_CODEC_KSERVE_REQUEST_H
#define SLUICE_CODEC_KSERVE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/json/limits.h"
#include "codec/kserve/json_elements_print.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/infer.h"

enum v2_form { V2_FORM_DEFAULT, V2_FORM_JSON, V2_FORM_BINARY }; /* `binary_data` of an output */

struct v2_request {
    struct infer_request infer;
    bool binary_default;           /* `binary_data_output`, or a raw request */
    const enum v2_form *forms;     /* one per infer.wanted */
    enum v2_non_finite non_finite; /* `non_finite`; the front end replaces DEFAULT */
};

/* Is output i of the response written to the client's shared memory instead of the body? */
static inline bool v2_request_output_in_shared_memory(const struct v2_request *request, size_t i) {
    return i < request->infer.n_wanted && request->infer.wanted[i].region.name.ptr;
}

/* What Inference-Header-Content-Length announces. */
enum v2_header_kind { V2_HEADER_ABSENT, V2_HEADER_RAW, V2_HEADER_JSON };

/* Parses the value of Inference-Header-Content-Length: decimal digits only. `n_fields` is the
 * number of such header fields. Returns: ST_BAD_FRAMING for signs, other bases, repeated fields,
 * values over 2^63-1. */
enum status v2_header_length_parse(size_t n_fields, struct str value, enum v2_header_kind *kind,
                                   uint64_t *json_bytes, struct error *err) SLUICE_MUST_USE;

/* Decodes a body whose first `json_bytes` bytes are JSON. `body` must live as long as the
 * request. Depth, number of elements and memory of the tree are bounded before it is built. The
 * sum of the binary sizes must be exactly the rest of the body. Unknown members are ignored; of
 * equal names the first counts. `data` may be flat or nested in any way: its elements are read
 * in the order of the text and only their number is checked against the shape. Bare NaN,
 * Infinity and -Infinity are allowed only in the data of float datatypes. Returns: BAD_JSON with
 * the offset; BAD_FIELD and others with the JSON path ("inputs[0].shape[1]"). Owns: in `arena`,
 * or views of `body`.
 * Clause: binary-tensor-data "Binary Tensor Request"; OIP, inference request. */
enum status v2_request_decode(struct arena *arena, struct str body, size_t json_bytes,
                              const struct json_limits *limits, struct v2_request *out,
                              struct error *err) SLUICE_MUST_USE;

#endif
