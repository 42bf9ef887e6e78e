/* Executes batches. */
#ifndef SLUICE_OPENVINO_EXECUTE_H
#define SLUICE_OPENVINO_EXECUTE_H

#include <stddef.h>

#include "openvino/model.h"
#include "sluice/backend.h"

/* Implements `execute` of sluice_backend: every request is answered on return. */
void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n);

/* The `run` function of struct batch; `runner` is an instance. */
sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error);

#endif
