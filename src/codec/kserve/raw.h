/* The raw binary request: a body that is only the bytes of the model's one input
 * (Inference-Header-Content-Length: 0).
 * Clause: binary-tensor-data, "Raw Binary Request". */
#ifndef SLUICE_CODEC_KSERVE_RAW_H
#define SLUICE_CODEC_KSERVE_RAW_H

#include "codec/kserve/request.h"
#include "codec/kserve/request_encode.h"

/* Decodes a body by the specification of the model's one input. `body` must live as long as the
 * request. Returns: ST_BAD_INPUTS if the shape can't be deduced for this model; ST_BAD_DATA for
 * a body of the wrong size. Owns: in `arena`, or views of `body`. */
enum status v2_raw_decode(struct arena *arena, struct str body, const struct model_spec *model,
                          const struct json_limits *limits, struct v2_request *out,
                          struct error *err) SLUICE_MUST_USE;

/* Encodes a request: the bytes of the one tensor. A BYTES tensor has one element, which is sent
 * without its length. Returns: ST_BAD_DATA for a size that does not fit the shape, or another
 * number of elements. */
enum status v2_raw_encode(struct arena *arena, const struct tensor *tensor,
                          struct v2_request_body *out, struct error *err) SLUICE_MUST_USE;

#endif
