/* Executes batches. */
#ifndef SLUICE_ONNXRUNTIME_EXECUTE_H
#define SLUICE_ONNXRUNTIME_EXECUTE_H

#include <stddef.h>

#include "onnxruntime/model.h"
#include "sluice/backend.h"

/* Implements `execute` of sluice_backend: every request is answered on return. */
void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n);

/* The functions of struct batch; `runner` is an instance. */
sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error);
int can_share(const void *runner, const sluice_request *const *requests, size_t n);

#endif
