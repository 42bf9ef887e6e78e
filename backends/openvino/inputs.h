/* The inputs of a batch as OpenVINO's tensors. */
#ifndef SLUICE_OPENVINO_INPUTS_H
#define SLUICE_OPENVINO_INPUTS_H

#include <stddef.h>

#include "openvino/model.h"
#include "sluice/backend.h"

/* Gives the lane every input of the batch as a view: of the request's own bytes where a single
 * request has them in one piece, of the instance's gather otherwise. Returns:
 * SLUICE_INVALID_ARGUMENT for 64-bit whole numbers that the library would cut. inputs_release must
 * follow, also on failure. */
sluice_status inputs_set(sluice_instance *instance, struct pooled_request *pooled,
                         const sluice_request *const *requests, size_t n, sluice_error *error);
void inputs_release(sluice_instance *instance);

#endif
