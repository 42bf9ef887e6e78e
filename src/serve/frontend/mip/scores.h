/* Outputs that are scores: softmax over the values of one element, and its top-k values with their
 * labels. Computed in double for every datatype. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_SCORES_H
#define SLUICE_SERVE_FRONTEND_MIP_SCORES_H

#include "codec/kserve/json_elements_print.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "serve/frontend/mip/plan.h"

/* Appends the JSON of one element's values by the settings of `output` (softmax or top_k):
 *
 *     top_k            {"seven":0.98,"one":0.01}   greatest first, equal ones by index
 *     softmax alone    [[0.1,0.9]]                 nested like the shape
 *
 * Without labels the keys are indices. `element` is of numbers, in at most one piece. Returns:
 * ST_BAD_OUTPUT for NaN, which has no rank, for values that have no softmax, and for a value
 * without a label; ST_NO_MEMORY. `scratch` holds what is needed meanwhile. */
enum status mip_scores_print(struct buf *out, struct arena *scratch,
                             const struct mip_output *output, const struct tensor *element,
                             enum v2_non_finite non_finite, struct error *err) SLUICE_MUST_USE;

#endif
