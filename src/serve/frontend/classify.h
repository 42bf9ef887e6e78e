/* Classification: an output is replaced by BYTES with its top-k classes, "value:index" or
 * "value:index:label", the greatest value first.
 *
 * Clause: reference, classification, 1. */
#ifndef SLUICE_SERVE_FRONTEND_CLASSIFY_H
#define SLUICE_SERVE_FRONTEND_CLASSIFY_H

#include "core/tensor/infer.h"
#include "serve/frontend/labels.h"

/* Checks that classification is requested only for outputs that can be ranked. Call it after
 * infer_check, before the request runs. Returns: ST_BAD_DATATYPE. */
enum status classify_check(const struct infer_request *request, const struct model_spec *model,
                           struct error *err) SLUICE_MUST_USE;

/* Replaces each output of `response` for which classification was requested by BYTES of shape
 * [batch, k] where the model batches, else [k]; k is at most the number of values of one batch
 * element. `labels`: one per output of the model. Returns: ST_BAD_SHAPE for outputs with more than
 * 1,000,000 values per batch element, ST_NO_MEMORY. Owns: new memory is in `arena`. */
enum status classify_outputs(struct arena *arena, const struct infer_request *request,
                             const struct model_spec *model, const struct labels *labels,
                             struct infer_response *response, struct error *err) SLUICE_MUST_USE;

#endif
