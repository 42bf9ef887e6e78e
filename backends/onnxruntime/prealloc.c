/* Predicts output shapes. A free dimension has a name, and one name should mean one number, so an
 * output's shape follows from the inputs that use its names. ONNX Runtime fails the run when the
 * model makes another shape. */
#include "onnxruntime/prealloc.h"

#include <stdlib.h>
#include <string.h>

#include "onnxruntime/datatype.h"

/* ---- per model ------------------------------------------------------------------------------- */

/* Finds the name among the dimensions of required inputs. */
static int find_symbol(const struct signature *signature, const char *name,
                       struct prealloc_dim *out) {
    for (size_t i = 0; i < signature->n_inputs; i++) {
        const sluice_tensor_info *input = &signature->inputs[i];
        for (size_t k = 0; !input->optional && k < input->rank; k++) {
            if (input->dims[k] < 0 && strcmp(input->symbols[k], name) == 0) {
                *out = (struct prealloc_dim){-1, (uint32_t)i, (uint32_t)k};
                return 1;
            }
        }
    }
    return 0;
}

/* An output that is an input has no value of its own: the preallocated one is not written. */
static int is_input(const struct signature *signature, const char *name) {
    for (size_t i = 0; i < signature->n_inputs; i++) {
        if (strcmp(signature->inputs[i].name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

/* An output without dimensions may have an unknown shape (signature.c), and is not preallocated. */
static void prealloc_output_init(struct prealloc_output *output, const struct signature *signature,
                                 const sluice_tensor_info *info) {
    output->rank = info->rank;
    output->shape_known = info->datatype != SLUICE_BYTES && info->rank > 0 &&
                          info->rank <= PREALLOC_MAX_RANK && !is_input(signature, info->name);
    for (size_t i = 0; output->shape_known && i < info->rank; i++) {
        output->from[i].number = info->dims[i];
        output->shape_known =
            info->dims[i] >= 0 || (info->symbols[i][0] != '\0' &&
                                   find_symbol(signature, info->symbols[i], &output->from[i]));
    }
}

int prealloc_init(struct prealloc *prealloc, const struct signature *signature) {
    prealloc->outputs = calloc(signature->n_outputs + 1, sizeof(*prealloc->outputs));
    prealloc->n = signature->n_outputs;
    for (size_t i = 0; prealloc->outputs && i < prealloc->n; i++) {
        prealloc_output_init(&prealloc->outputs[i], signature, &signature->outputs[i]);
    }
    return prealloc->outputs != NULL;
}

void prealloc_fini(struct prealloc *prealloc, const struct ort *ort) {
    for (size_t i = 0; prealloc->outputs && i < prealloc->n; i++) {
        ort->api->ReleaseValue(prealloc->outputs[i].value);
    }
    free(prealloc->outputs);
    *prealloc = (struct prealloc){NULL, 0};
}

/* ---- per run --------------------------------------------------------------------------------- */

/* Returns: -1 when the request lacks the input. */
static int64_t dim_of_input(const struct prealloc_dim *from, const sluice_request *request) {
    for (size_t i = 0; i < request->n_inputs; i++) {
        const sluice_input *input = &request->inputs[i];
        if (input->index == from->input && from->dim < input->rank) {
            return input->dims[from->dim];
        }
    }
    return -1;
}

/* Returns: 0 when a dimension is unknown. */
static int dims_of(const struct prealloc_output *output, const sluice_request *request,
                   int64_t *dims) {
    for (size_t i = 0; i < output->rank; i++) {
        const struct prealloc_dim *from = &output->from[i];
        dims[i] = from->number >= 0 ? from->number : dim_of_input(from, request);
        if (dims[i] < 0) {
            return 0;
        }
    }
    return 1;
}

/* Returns: 0 when it is empty or exceeds PREALLOC_MAX_BYTES. */
static size_t bytes_of_dims(const int64_t *dims, size_t rank, size_t n_element_bytes) {
    size_t n_bytes = n_element_bytes;
    for (size_t i = 0; i < rank; i++) {
        if (__builtin_mul_overflow(n_bytes, (size_t)dims[i], &n_bytes)) {
            return 0;
        }
    }
    return n_bytes <= PREALLOC_MAX_BYTES ? n_bytes : 0;
}

/* Replaces the value by one for these dimensions. */
static int value_new(struct prealloc_output *output, const struct ort *ort,
                     const struct datatype *datatype, const int64_t *dims) {
    size_t n_bytes = bytes_of_dims(dims, output->rank, datatype->n_bytes);
    if (n_bytes == 0) {
        return 0;
    }
    ort->api->ReleaseValue(output->value);
    output->value = NULL;
    output->n_bytes = n_bytes;
    memcpy(output->dims, dims, output->rank * sizeof(*dims));
    OrtStatus *failure = ort->api->CreateTensorWithDataAsOrtValue(
        ort->cpu, output->bytes, n_bytes, dims, output->rank, datatype->theirs, &output->value);
    ort->api->ReleaseStatus(failure);
    return output->value != NULL;
}

const struct prealloc_output *prealloc_find(struct prealloc *prealloc, const struct ort *ort,
                                            const struct signature *signature, size_t index,
                                            const sluice_request *request) {
    struct prealloc_output *output = &prealloc->outputs[index];
    int64_t dims[PREALLOC_MAX_RANK];
    if (!output->shape_known || !dims_of(output, request, dims)) {
        return NULL;
    }
    if (output->value && memcmp(dims, output->dims, output->rank * sizeof(*dims)) == 0) {
        return output;
    }
    const struct datatype *datatype = datatype_of_ours(signature->outputs[index].datatype);
    return value_new(output, ort, datatype, dims) ? output : NULL;
}
