/* ONNX Runtime's values as results. Numbers stay in its memory; strings are copied. */
#include "onnxruntime/results.h"

#include <string.h>

#include "onnxruntime/datatype.h"
#include "onnxruntime/inputs.h"
#include "onnxruntime/strings.h"

static const char doing[] = "an output could not be read from ONNX Runtime";

static OrtStatus *shape_read(const OrtApi *api, const OrtValue *value, struct result *result,
                             ONNXTensorElementDataType *element) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    OrtStatus *failure = api->GetTensorTypeAndShape(value, &info);
    if (!failure) {
        failure = api->GetTensorElementType(info, element);
    }
    if (!failure) {
        failure = api->GetDimensionsCount(info, &result->rank);
    }
    if (!failure && result->rank > RESULT_MAX_RANK) {
        failure = api->CreateStatus(ORT_INVALID_ARGUMENT, "an output has more than 64 dimensions");
    }
    if (!failure) {
        failure = api->GetDimensions(info, result->dims, result->rank);
    }
    api->ReleaseTensorTypeAndShapeInfo(info);
    return failure;
}

static sluice_status bytes_find(const struct ort *ort, struct result *result, size_t count,
                                const struct gather *gather, sluice_error *error) {
    void *data = NULL;
    if (result->datatype == SLUICE_BYTES) {
        sluice_status status =
            string_tensor_read(ort, result->value, count, &result->block, &result->n_bytes, error);
        result->next = result->block;
        return status;
    }
    sluice_status status =
        ort_check(ort, ort->api->GetTensorMutableData(result->value, &data), doing, error);
    return status == SLUICE_OK ? result_set_data(result, data, count, gather, error) : status;
}

static sluice_status result_init(const struct ort *ort, struct result *result,
                                 const sluice_tensor_info *info, const struct gather *gather,
                                 sluice_error *error) {
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const struct datatype *datatype = datatype_of_ours(info->datatype);
    size_t count = 0;
    sluice_status status =
        ort_check(ort, shape_read(ort->api, result->value, result, &element), doing, error);
    if (status != SLUICE_OK) {
        return status;
    }
    result->datatype = info->datatype;
    result->n_element_bytes = datatype->n_bytes;
    if (element != datatype->theirs || !result_count(result, &count)) {
        return error_set(
            error, SLUICE_INTERNAL,
            "output \"%.100s\" came as a tensor of type %s, not as the model describes it",
            info->name, datatype_word(element));
    }
    return bytes_find(ort, result, count, gather, error);
}

/* Copies a preallocated value's bytes, because the next run reuses it. */
static sluice_status result_copy(struct result *result, const sluice_tensor_info *info,
                                 const struct prealloc_output *prealloc, sluice_error *error) {
    result->datatype = info->datatype;
    result->n_element_bytes = datatype_of_ours(info->datatype)->n_bytes;
    result->rank = prealloc->rank;
    memcpy(result->dims, prealloc->dims, prealloc->rank * sizeof(prealloc->dims[0]));
    result->next = prealloc->bytes;
    result->n_bytes = result->n_all_bytes = prealloc->n_bytes;
    return result_copy_bytes(result, error);
}

static void values_drop(struct results *results) {
    const struct ort *ort = results->owner;
    for (size_t i = 0; i < results->n; i++) {
        ort->api->ReleaseValue(results->items[i].value);
    }
}

static struct results *values_take(const struct ort *ort, const struct run_outputs *run_outputs) {
    struct results *results = results_new(run_outputs->n, run_outputs->n_requests);
    for (size_t i = 0; i < run_outputs->n; i++) {
        OrtValue *made = run_outputs->prealloc[i] ? NULL : run_outputs->values[i];
        if (results) {
            results->items[i].value = made;
        } else {
            ort->api->ReleaseValue(made);
        }
    }
    if (results) {
        results->free_values = values_drop;
        results->owner = ort;
    }
    return results;
}

sluice_status results_make(const struct ort *ort, const struct run_outputs *run_outputs,
                           struct results **out, sluice_error *error) {
    sluice_status status = SLUICE_OK;
    struct results *results = values_take(ort, run_outputs);
    if (!results) {
        return error_no_memory(error, "the outputs");
    }
    for (size_t i = 0; status == SLUICE_OK && i < run_outputs->n; i++) {
        const sluice_tensor_info *info = run_outputs->infos[i];
        const struct prealloc_output *prealloc = run_outputs->prealloc[i];
        status = prealloc ? result_copy(&results->items[i], info, prealloc, error)
                          : result_init(ort, &results->items[i], info, run_outputs->gather, error);
        if (status == SLUICE_OK && run_outputs->n_requests > 1) {
            status = result_split(&results->items[i], info->name, run_outputs->n_rows, error);
        }
    }
    if (status != SLUICE_OK) {
        results_free(results);
        return status;
    }
    *out = results;
    return SLUICE_OK;
}
