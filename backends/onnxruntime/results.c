/* Output values as bytes: where they lie, what shape they have, how they are shared out. Numbers
 * stay in ONNX Runtime's memory; strings, and what would not stay, are copied. */
#include "onnxruntime/results.h"

#include <stdlib.h>
#include <string.h>

#include "onnxruntime/datatype.h"
#include "onnxruntime/strings.h"

static const char doing[] = "an output could not be read from ONNX Runtime";

/* Element count by the shape, and its bytes. Returns: 0 when they don't fit a size_t. */
static int count_of(const int64_t *dims, size_t rank, size_t *count) {
    *count = 1;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || __builtin_mul_overflow(*count, (size_t)dims[i], count)) {
            return 0;
        }
    }
    return 1;
}

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
        failure = api->CreateStatus(ORT_FAIL, "an output has more than 64 dimensions");
    }
    if (!failure) {
        failure = api->GetDimensions(info, result->dims, result->rank);
    }
    api->ReleaseTensorTypeAndShapeInfo(info);
    return failure;
}

static sluice_status bytes_find(const struct ort *ort, struct result *result, size_t count,
                                sluice_error *error) {
    void *data = NULL;
    if (result->datatype->ours == SLUICE_BYTES) {
        sluice_status status =
            strings_take(ort, result->value, count, &result->block, &result->n_bytes, error);
        result->next = result->block;
        return status;
    }
    sluice_status status =
        ort_check(ort, ort->api->GetTensorMutableData(result->value, &data), doing, error);
    result->next = data ? data : (const void *)""; /* an empty tensor has no address */
    if (__builtin_mul_overflow(count, result->datatype->n_bytes, &result->n_bytes)) {
        return error_set(error, SLUICE_INTERNAL, "an output is larger than memory");
    }
    return status;
}

/* A graph may hand an input through as an output. Where that is the request's own memory the
 * interface allows it; the gathered batch is ours and will be overwritten. */
static sluice_status keep(struct result *result, const struct gather *gather, sluice_error *error) {
    uintptr_t from = (uintptr_t)gather->bytes, at = (uintptr_t)result->next;
    if (result->block || !result->next || at < from || at >= from + gather->n_bytes) {
        return SLUICE_OK;
    }
    result->block = malloc(result->n_bytes + 1);
    if (!result->block) {
        return error_set(error, SLUICE_NO_MEMORY, "no memory to keep an output");
    }
    memcpy(result->block, result->next, result->n_bytes);
    result->next = result->block;
    return SLUICE_OK;
}

static sluice_status result_init(const struct ort *ort, struct result *result,
                                 const sluice_tensor_info *info, const struct gather *gather,
                                 sluice_error *error) {
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t count = 0;
    sluice_status status =
        ort_check(ort, shape_read(ort->api, result->value, result, &element), doing, error);
    if (status != SLUICE_OK) {
        return status;
    }
    result->datatype = datatype_of_ours(info->datatype);
    if (element != result->datatype->theirs || !count_of(result->dims, result->rank, &count)) {
        return error_set(
            error, SLUICE_INTERNAL,
            "output \"%.100s\" came as a tensor of type %s, not as the model describes it",
            info->name, datatype_word(element));
    }
    status = bytes_find(ort, result, count, error);
    return status == SLUICE_OK ? keep(result, gather, error) : status;
}

/* Can the rows be shared out between the requests of a batch? */
static sluice_status split_prepare(struct result *result, const sluice_tensor_info *info,
                                   uint64_t n_rows, sluice_error *error) {
    if (result->rank == 0 || (uint64_t)result->dims[0] != n_rows) {
        return error_set(error, SLUICE_INTERNAL,
                         "output \"%.100s\" of a batch of %llu rows has %lld", info->name,
                         (unsigned long long)n_rows,
                         (long long)(result->rank ? result->dims[0] : 0));
    }
    count_of(result->dims + 1, result->rank - 1, &result->n_row_elements);
    return SLUICE_OK;
}

static void results_free(struct results *results) {
    for (size_t i = 0; i < results->n; i++) {
        results->ort->api->ReleaseValue(results->items[i].value);
        free(results->items[i].block);
    }
    free(results);
}

static struct results *results_new(const struct ort *ort, OrtValue **values, size_t n) {
    struct results *results = malloc(sizeof(*results) + n * sizeof(results->items[0]));
    if (!results) {
        inputs_release(ort, values, n);
        return NULL;
    }
    results->ort = ort;
    results->n = n;
    for (size_t i = 0; i < n; i++) {
        results->items[i].value = values[i];
        results->items[i].block = NULL;
    }
    return results;
}

sluice_status results_make(const struct ort *ort, const struct outcome *outcome,
                           struct results **out, sluice_error *error) {
    sluice_status status = SLUICE_OK;
    struct results *results = results_new(ort, outcome->values, outcome->n);
    if (!results) {
        return error_set(error, SLUICE_NO_MEMORY, "no memory for the outputs");
    }
    atomic_init(&results->n_refs, outcome->n_requests);
    for (size_t i = 0; status == SLUICE_OK && i < outcome->n; i++) {
        const sluice_tensor_info *info = outcome->infos[i];
        status = result_init(ort, &results->items[i], info, outcome->gather, error);
        if (status == SLUICE_OK && outcome->n_requests > 1) {
            status = split_prepare(&results->items[i], info, outcome->n_rows, error);
        }
    }
    if (status != SLUICE_OK) {
        results_free(results);
        return status;
    }
    *out = results;
    return SLUICE_OK;
}

/* Bytes of the next `n` elements; of strings, by walking over their lengths. */
static size_t bytes_of(const struct result *result, size_t n) {
    size_t n_bytes = 0;
    if (result->datatype->ours != SLUICE_BYTES) {
        return n * result->datatype->n_bytes;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t length;
        memcpy(&length, result->next + n_bytes, sizeof(length));
        n_bytes += sizeof(length) + length;
    }
    return n_bytes;
}

void result_take(struct result *result, int split, uint64_t n_rows, sluice_output *output) {
    size_t n_bytes = result->n_bytes;
    if (split) { /* the rows of all requests are those of the result: nothing here can be past its
                    end */
        n_bytes = bytes_of(result, (size_t)n_rows * result->n_row_elements);
        result->dims[0] = (int64_t)n_rows;
    }
    output->datatype = result->datatype->ours;
    output->dims = result->dims;
    output->rank = result->rank;
    output->data = result->next;
    output->n_bytes = n_bytes;
    result->next += n_bytes;
    result->n_bytes -= n_bytes;
}

void results_release(void *cookie) {
    struct results *results = cookie;
    if (atomic_fetch_sub_explicit(&results->n_refs, 1, memory_order_acq_rel) == 1) {
        results_free(results);
    }
}
