/* What a run gave, as results. */
#ifndef SLUICE_OPENVINO_OUTPUTS_H
#define SLUICE_OPENVINO_OUTPUTS_H

#include <stddef.h>

#include "openvino/model.h"
#include "sluice/backend.h"

/* The chosen outputs of the lane's run; with several requests each must have the rows of all of
 * them as its first dimension. Owns: on success *results, with a reference for each request, and in
 * it the lane. */
sluice_status outputs_get(sluice_instance *instance, struct pooled_request *pooled,
                          const sluice_request *const *requests, size_t n, struct results **results,
                          sluice_error *error);

#endif
