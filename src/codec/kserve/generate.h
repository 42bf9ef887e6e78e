/* The generate extension of the reference server: a flat JSON object whose members are a model's
 * inputs and parameters, and a flat JSON object with its outputs. The model's specification
 * decides which members are inputs and which shape they have. */
#ifndef SLUICE_CODEC_KSERVE_GENERATE_H
#define SLUICE_CODEC_KSERVE_GENERATE_H

#include "codec/kserve/request.h"
#include "core/base/buf.h"
#include "core/tensor/infer.h"

/* Decodes a body. A member with the name of an input is its tensor: an element, or a flat array
 * of them. The fixed dimensions must divide the number of elements; the innermost -1 becomes the
 * quotient and other -1 become 1, the batch too. The members of "parameters" count as members of
 * the body. `id` is the request's id, and a parameter too; all others are parameters: strings,
 * numbers, booleans; of equal names the first counts. `non_finite` is not passed to the model:
 * *non_finite is its value, or V2_NON_FINITE_DEFAULT. No parameter affects scheduling
 * (`params_are_opaque`). A member that is null counts as absent. Returns: ST_BAD_JSON,
 * ST_BAD_FIELD, ST_BAD_DATA with the path; ST_BAD_INPUTS for a duplicate input; ST_BODY_TOO_LARGE
 * for tensors of more than `max_bytes` together. Owns: in `arena`. */
enum status v2_generate_decode(struct arena *arena, struct str body, const struct model_spec *model,
                               const struct json_limits *limits, uint64_t max_bytes,
                               struct infer_request *out, enum v2_non_finite *non_finite,
                               struct error *err) SLUICE_MUST_USE;

/* Appends a response: `id` (if not empty), model_name, model_version, the response's parameters
 * and outputs, sorted by the bytes of their names; of equal names the output is printed, else
 * the parameter. An output of one element is a bare value, others are flat arrays. Returns:
 * ST_BAD_OUTPUT for data that JSON can't carry, ST_NO_MEMORY; the buffer is not JSON then. */
enum status v2_generate_print(struct buf *out, const struct model_spec *model, struct str id,
                              const struct infer_response *response, enum v2_non_finite non_finite,
                              struct error *err) SLUICE_MUST_USE;

#endif
