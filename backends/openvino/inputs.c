/* Views of memory that is the request's or the instance's. The library does not write to its
 * inputs, though its function takes a pointer that could be written through. */
#include "openvino/inputs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "openvino/datatype.h"

static sluice_status refuse_wide(const sluice_input *input, int64_t value, sluice_error *error) {
    char text[32];
    if (input->datatype == SLUICE_UINT64) {
        snprintf(text, sizeof(text), "%" PRIu64, (uint64_t)value);
    } else {
        snprintf(text, sizeof(text), "%" PRId64, value);
    }
    return error_set(error, SLUICE_INVALID_ARGUMENT,
                     "input \"%.100s\" has %s, and OpenVINO computes 64-bit numbers as 32-bit "
                     "ones: values from %ld to %ld are expected",
                     input->name, text, input->datatype == SLUICE_UINT64 ? 0L : (long)INT32_MIN,
                     (long)INT32_MAX);
}

/* The CPU device keeps the lower half of a 64-bit number and says nothing. A wrong answer is worse
 * than none. */
static sluice_status width_check(const sluice_input *input, const void *data, size_t n_bytes,
                                 sluice_error *error) {
    if (input->datatype != SLUICE_INT64 && input->datatype != SLUICE_UINT64) {
        return SLUICE_OK;
    }
    int64_t min = input->datatype == SLUICE_UINT64 ? 0 : INT32_MIN;
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n_bytes; i += sizeof(int64_t)) {
        int64_t value;
        memcpy(&value, bytes + i, sizeof(value));
        if (value < min || value > INT32_MAX) {
            return refuse_wide(input, value, error);
        }
    }
    return SLUICE_OK;
}

static sluice_status input_set(sluice_instance *instance, struct pooled_request *pooled,
                               const sluice_request *const *requests, size_t n, size_t index,
                               sluice_error *error) {
    static const char doing[] = "an input could not be handed to OpenVINO";
    const sluice_input *input = &requests[0]->inputs[index];
    int64_t room[GATHER_MAX_RANK];
    const int64_t *dims = gather_dims(requests, n, index, room);
    const ov_shape_t shape = {(int64_t)input->rank, (int64_t *)(uintptr_t)dims};
    size_t n_bytes = 0;
    const void *data = gather_input(&instance->gather, requests, n, index, &n_bytes);
    sluice_status status = width_check(input, data, n_bytes, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status =
        ov_check(ov_tensor_create_from_host_ptr(datatype_of_ours(input->datatype)->theirs, shape,
                                                (void *)(uintptr_t)data, &instance->inputs[index]),
                 doing, error);
    if (status != SLUICE_OK) {
        return status;
    }
    return ov_check(ov_infer_request_set_input_tensor_by_index(pooled->request, input->index,
                                                               instance->inputs[index]),
                    doing, error);
}

sluice_status inputs_set(sluice_instance *instance, struct pooled_request *pooled,
                         const sluice_request *const *requests, size_t n, sluice_error *error) {
    if (!gather_begin(&instance->gather, requests, n)) {
        return error_set(error, SLUICE_NO_MEMORY, "no memory to put the inputs together");
    }
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; status == SLUICE_OK && i < requests[0]->n_inputs; i++) {
        status = input_set(instance, pooled, requests, n, i, error);
    }
    return status;
}

void inputs_release(sluice_instance *instance) {
    for (size_t i = 0; i < instance->model->signature.n_inputs; i++) {
        ov_tensor_free(instance->inputs[i]);
        instance->inputs[i] = NULL;
    }
}
