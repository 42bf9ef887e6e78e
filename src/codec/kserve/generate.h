/* The generate extension of the reference server: a flat JSON object whose members are a model's
 * inputs and parameters, and a flat JSON object with its outputs. It needs to know the model, whose
 * specification says what a member is and which shape its elements have. */
#ifndef SLUICE_CODEC_KSERVE_GENERATE_H
#define SLUICE_CODEC_KSERVE_GENERATE_H

#include "codec/kserve/request.h"
#include "core/base/buf.h"
#include "core/tensor/infer.h"

/* Decodes a body. A member that is called like an input is its tensor: an element, or a flat array
 * of them; the fixed dimensions must divide their number, the innermost -1 takes the rest and other
 * -1 become 1, the batch too. The members of "parameters" count as if they stood outside. `id` is
 * the request's, and a parameter too; all others are parameters: strings, numbers, booleans; of
 * equal names the first counts. Nothing has a meaning for the queue (`params_are_opaque`).
 * Returns: ST_BAD_JSON, ST_BAD_FIELD, ST_BAD_DATA by the path; ST_BAD_INPUTS for an input that is
 * there twice; ST_BODY_TOO_LARGE for tensors of more than `max_bytes` together. Owns: in
 * `arena`. */
enum status v2_generate_decode(struct arena *arena, struct str body, const struct model_spec *model,
                               const struct json_limits *limits, uint64_t max_bytes,
                               struct infer_request *out, struct error *err)
    __attribute__((warn_unused_result));

/* Appends an answer: `id` (if there is one), model_name, model_version, the answer's parameters and
 * outputs, in the order of their names' bytes; of equal names the output counts, then the
 * parameter. An output of one element stands alone, others are flat arrays. Returns: ST_BAD_OUTPUT
 * for what JSON can't carry, ST_NO_MEMORY; what was appended is no JSON then. */
enum status v2_generate_print(struct buf *out, const struct model_spec *model, struct str id,
                              const struct infer_response *response, struct error *err)
    __attribute__((warn_unused_result));

#endif
