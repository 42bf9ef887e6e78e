/* Classification: an output of which only the best values are asked for comes as BYTES that say
 * "value:index" or "value:index:label", the best first.
 * Clause: reference, classification, 1. */
#ifndef SLUICE_SERVE_FRONTEND_CLASSIFY_H
#define SLUICE_SERVE_FRONTEND_CLASSIFY_H

#include "core/tensor/infer.h"
#include "serve/frontend/labels.h"

/* Is it asked only of outputs that can be ranked? Before the request runs, after infer_check.
 * Returns: ST_BAD_DATATYPE. */
enum status classify_check(const struct infer_request *request, const struct model_spec *model,
                           struct error *err) __attribute__((warn_unused_result));

/* Puts BYTES in the place of each output of `response` for which that was asked; their shape is
 * [batch, k] where the model batches, else [k], and k is at most the values of one element of the
 * batch. `labels` are one per output of the model. Returns: ST_BAD_SHAPE for outputs with more than
 * 1,000,000 values for each element of the batch, ST_NO_MEMORY. Owns: what is new in the request's
 * arena. */
enum status classify_outputs(const struct infer_request *request, const struct model_spec *model,
                             const struct labels *labels, struct infer_response *response,
                             struct error *err) __attribute__((warn_unused_result));

#endif
