/* Running batches. */
#ifndef SLUICE_OPENVINO_EXECUTE_H
#define SLUICE_OPENVINO_EXECUTE_H

#include <stddef.h>

#include "openvino/model.h"
#include "sluice/backend.h"

/* The function of sluice_backend of the same name: every request has its answer when it returns. */
void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n);

/* For struct batch, of an instance. */
sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error);

#endif
