/* Datatypes; inputs as ONNX Runtime's values, numbers in place or gathered, strings element by
 * element; its output values as results. BYTES tensors become string tensors and back without loss:
 * an element may be empty and contain NULs. Sizes and shapes were checked by the server. */
#include "onnxruntime/tensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- datatypes ------------------------------------------------------------------------------- */

/* In the order of sluice_datatype, from 1. */
static const struct datatype table[] = {
    {SLUICE_BOOL, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 1},
    {SLUICE_UINT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, 1},
    {SLUICE_UINT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, 2},
    {SLUICE_UINT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, 4},
    {SLUICE_UINT64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, 8},
    {SLUICE_INT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, 1},
    {SLUICE_INT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, 2},
    {SLUICE_INT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4},
    {SLUICE_INT64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 8},
    {SLUICE_FP16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2},
    {SLUICE_FP32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4},
    {SLUICE_FP64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, 8},
    {SLUICE_BYTES, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, 0},
    {SLUICE_BF16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, 2},
};

enum { N_ROWS = sizeof(table) / sizeof(table[0]) };

/* Indexed by ONNX's TensorProto.DataType, as in onnxruntime_c_api.h. */
static const char *const words[] = {
    "undefined",      "float",      "uint8",          "int8",       "uint16",   "int16",
    "int32",          "int64",      "string",         "bool",       "float16",  "double",
    "uint32",         "uint64",     "complex64",      "complex128", "bfloat16", "float8e4m3fn",
    "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",
};

const struct datatype *datatype_of_ours(sluice_datatype ours) {
    return &table[(size_t)ours - 1];
}

const struct datatype *datatype_of_theirs(ONNXTensorElementDataType theirs) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (table[i].theirs == theirs) {
            return &table[i];
        }
    }
    return NULL;
}

const char *datatype_word(ONNXTensorElementDataType theirs) {
    size_t index = (size_t)theirs;
    return index < sizeof(words) / sizeof(words[0]) ? words[index] : "of a newer kind";
}

/* ---- strings --------------------------------------------------------------------------------- */

/* ONNX Runtime's functions for NUL-terminated strings are not used. */

enum { LENGTH_BYTES = 4 };

/* The read position in the pieces of an input, which may be split anywhere. */
struct cursor {
    const sluice_piece *piece;
    size_t n_pieces; /* from `piece` on */
    size_t offset;   /* in `piece` */
};

/* Returns: 0 when fewer than `n_bytes` are left. */
static int cursor_read(struct cursor *cursor, void *to, size_t n_bytes) {
    unsigned char *out = to;
    while (n_bytes > 0 && cursor->n_pieces > 0) {
        size_t left = cursor->piece->n_bytes - cursor->offset;
        size_t n = left < n_bytes ? left : n_bytes;
        if (n > 0) { /* an empty piece may have no address */
            memcpy(out, (const unsigned char *)cursor->piece->data + cursor->offset, n);
            out += n;
            n_bytes -= n;
            cursor->offset += n;
        }
        if (cursor->offset == cursor->piece->n_bytes) {
            cursor->piece++;
            cursor->n_pieces--;
            cursor->offset = 0;
        }
    }
    return n_bytes == 0;
}

/* Copies the elements of one input to the tensor's elements from *at on. The server checked the
 * lengths; a mismatch must still not crash. */
static OrtStatus *elements_fill(const struct ort *ort, const sluice_input *input, OrtValue *value,
                                size_t *at) {
    struct cursor cursor = {input->pieces, input->n_pieces, 0};
    size_t left = input->n_bytes;
    while (left > 0) {
        uint32_t length = 0;
        char *element = NULL;
        if (left < LENGTH_BYTES || !cursor_read(&cursor, &length, LENGTH_BYTES) ||
            length > left - LENGTH_BYTES) {
            return ort->api->CreateStatus(ORT_INVALID_ARGUMENT, "BYTES end inside an element");
        }
        OrtStatus *result =
            ort->api->GetResizedStringTensorElementBuffer(value, *at, length, &element);
        if (result) {
            return result;
        }
        if (!cursor_read(&cursor, element, length)) {
            return ort->api->CreateStatus(ORT_INVALID_ARGUMENT, "BYTES end inside an element");
        }
        left -= LENGTH_BYTES + length;
        (*at)++;
    }
    return NULL;
}

/* Makes a string tensor of shape `dims` from the elements of input `index` of every request, in
 * order. Owns: on success *value until ReleaseValue. Returns: NULL or ONNX Runtime's error. */
static OrtStatus *string_tensor_new(const struct ort *ort, const sluice_request *const *requests,
                                    size_t n_requests, size_t index, const int64_t *dims,
                                    OrtValue **value) {
    size_t at = 0;
    *value = NULL;
    OrtStatus *result =
        ort->api->CreateTensorAsOrtValue(ort->allocator, dims, requests[0]->inputs[index].rank,
                                         ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, value);
    for (size_t i = 0; !result && i < n_requests; i++) {
        result = elements_fill(ort, &requests[i]->inputs[index], *value, &at);
    }
    if (result) {
        ort->api->ReleaseValue(*value);
        *value = NULL;
    }
    return result;
}

/* The contents are at the end of the block, one after another; each is moved down after its length
 * prefix. A write never overtakes unread bytes: the distance is the length prefixes that are still
 * to be written. */
static int frame_strings(unsigned char *block, size_t n_bytes, const size_t *offsets,
                         size_t count) {
    const unsigned char *contents = block + count * LENGTH_BYTES;
    size_t n_contents = n_bytes - count * LENGTH_BYTES;
    for (size_t i = 0; i < count; i++) {
        size_t length = (i + 1 < count ? offsets[i + 1] : n_contents) - offsets[i];
        if (length > UINT32_MAX) {
            return 0;
        }
        uint32_t prefix = (uint32_t)length;
        unsigned char *to = block + i * LENGTH_BYTES + offsets[i];
        memmove(to + LENGTH_BYTES, contents + offsets[i], length);
        memcpy(to, &prefix, LENGTH_BYTES);
    }
    return 1;
}

/* Writes a string tensor of `count` elements as BYTES. Owns: on success *block, to be freed. */
static sluice_status string_tensor_read(const struct ort *ort, const OrtValue *value, size_t count,
                                        unsigned char **block, size_t *n_bytes,
                                        sluice_error *error) {
    static const char doing[] = "strings could not be taken from ONNX Runtime";
    size_t n_contents = 0, *offsets = NULL;
    unsigned char *made = NULL;
    sluice_status status =
        ort_check(ort, ort->api->GetStringTensorDataLength(value, &n_contents), doing, error);
    if (status != SLUICE_OK) {
        return status;
    }
    *n_bytes = count * LENGTH_BYTES + n_contents;
    offsets = calloc(count + 1, sizeof(*offsets));
    made = malloc(*n_bytes + 1);
    if (!offsets || !made) {
        status = error_no_memory(error, "an output of strings");
        goto out;
    }
    status = ort_check(ort,
                       ort->api->GetStringTensorContent(value, made + count * LENGTH_BYTES,
                                                        n_contents, offsets, count),
                       doing, error);
    if (status == SLUICE_OK && !frame_strings(made, *n_bytes, offsets, count)) {
        status = error_set(error, SLUICE_INTERNAL, "a string of an output is over 4 GiB");
    }
out:
    free(offsets);
    if (status == SLUICE_OK) {
        *block = made;
    } else {
        free(made);
    }
    return status;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* A number tensor is a view of existing bytes. ONNX Runtime does not write to its inputs, though
 * its function takes a writable pointer. */
static OrtStatus *value_make(const struct ort *ort, struct gather *gather,
                             const sluice_request *const *requests, size_t n_requests, size_t index,
                             OrtValue **value) {
    const sluice_input *input = &requests[0]->inputs[index];
    int64_t room[MAX_RANK];
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
            return ort_check(ort, result, "an input could not be handed to ONNX Runtime", error);
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

/* ---- outputs --------------------------------------------------------------------------------- */

static const char output_failure[] = "an output could not be read from ONNX Runtime";

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
    if (!failure && result->rank > MAX_RANK) {
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
        ort_check(ort, ort->api->GetTensorMutableData(result->value, &data), output_failure, error);
    return status == SLUICE_OK ? result_set_data(result, data, count, gather, error) : status;
}

sluice_status output_read(const struct ort *ort, struct result *result,
                          const sluice_tensor_info *info, const struct gather *gather,
                          sluice_error *error) {
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const struct datatype *datatype = datatype_of_ours(info->datatype);
    size_t count = 0;
    sluice_status status = ort_check(ort, shape_read(ort->api, result->value, result, &element),
                                     output_failure, error);
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
