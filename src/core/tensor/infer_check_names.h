/* The names half of infer_check (core/tensor/infer.h); for infer_check.c only. */
#ifndef SLUICE_CORE_TENSOR_INFER_CHECK_NAMES_H
#define SLUICE_CORE_TENSOR_INFER_CHECK_NAMES_H

#include "core/tensor/infer.h"

/* Sets `spec` of every input; refuses unknown, repeated and missing ones. */
enum status infer_check_input_names(struct infer_request *request, const struct model_spec *model,
                                    struct error *err);
/* Sets `spec` of every wanted output; refuses unknown and repeated ones. */
enum status infer_check_output_names(struct infer_request *request, const struct model_spec *model,
                                     struct error *err);

#endif
