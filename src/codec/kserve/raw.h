/* The raw binary request: a body that is only the bytes of the model's one input
 * (Inference-Header-Content-Length: 0).
 * Clause: binary-tensor-data, "Raw Binary Request". */
#ifndef SLUICE_CODEC_KSERVE_RAW_H
#define SLUICE_CODEC_KSERVE_RAW_H

#include "codec/kserve/request.h"
#include "codec/kserve/request_encode.h"

/* Makes a request of a body that is only tensor bytes (Inference-Header-Content-Length: 0), by what
 * the model says of its one input. Returns: ST_BAD_INPUTS when the model does not qualify, saying
 * why.
 * Clause: binary-tensor-data, "Raw Binary Request". */
enum status v2_raw_decode(struct arena *arena, struct str body, const struct model_spec *model,
                          const struct json_limits *limits, struct v2_request *out,
                          struct error *err) __attribute__((warn_unused_result));

/* Encodes a raw request (Inference-Header-Content-Length: 0): the bytes of the one tensor and
 * nothing else. A BYTES tensor has one element, which leaves without its length. Returns:
 * ST_BAD_DATA for a size that does not fit the shape, or another count of elements.
 * Clause: binary-tensor-data, "Raw Binary Request". */
enum status v2_raw_encode(struct arena *arena, const struct tensor *tensor,
                          struct v2_request_body *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
