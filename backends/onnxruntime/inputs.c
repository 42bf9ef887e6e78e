/* Inputs as ONNX Runtime's values: numbers in place or gathered (common/gather.c), strings element
 * by element (strings.c). Sizes and shapes were checked by the server. */
#include "onnxruntime/inputs.h"

#include <stdint.h>

#include "onnxruntime/datatype.h"
#include "onnxruntime/strings.h"

static const char doing[] = "an input could not be handed to ONNX Runtime";

/* A number tensor is a view of existing bytes. ONNX Runtime does not write to its inputs, though
 * its function takes a writable pointer. */
static OrtStatus *value_make(const struct ort *ort, struct gather *gather,
                             const sluice_request *const *requests, size_t n_requests, size_t index,
                             OrtValue **value) {
    const sluice_input *input = &requests[0]->inputs[index];
    int64_t room[GATHER_MAX_RANK];
    const int64_t *dims = gather_dims(requests, n_requests, index, room);
    if (input->datatype == SLUICE_BYTES) {
        return string_tensor_new(ort, requests, n_requests, index, dims, value);
    }
    size_t n_bytes = 0;
    const void *data = gather_input(gather, requests, n_requests, index, &n_bytes);
    return ort->api->CreateTensorWithDataAsOrtValue(
        ort->cpu, (void *)(uintptr_t)data, n_bytes, dims, input->rank,
        datatype_of_ours(input->datatype)->theirs, value);
}

sluice_status inputs_make(const struct ort *ort, struct gather *gather,
                          const sluice_request *const *requests, size_t n_requests,
                          const char **names, OrtValue **values, size_t *n, sluice_error *error) {
    *n = 0;
    if (!gather_begin(gather, requests, n_requests)) {
        return error_no_memory(error, "gathering the inputs");
    }
    for (size_t i = 0; i < requests[0]->n_inputs; i++) {
        names[i] = requests[0]->inputs[i].name;
        OrtStatus *result = value_make(ort, gather, requests, n_requests, i, &values[i]);
        if (result) {
            inputs_release(ort, values, i);
            return ort_check(ort, result, doing, error);
        }
        *n = i + 1;
    }
    return SLUICE_OK;
}

void inputs_release(const struct ort *ort, OrtValue **values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ort->api->ReleaseValue(values[i]);
    }
}
