/* The table of datatypes, and names of element types outside it. */
#include "onnxruntime/datatype.h"

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
