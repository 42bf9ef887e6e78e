/* The table of datatypes, and names of element types outside it. Strings are not supported: the
 * library's C interface reads them only up to a NUL and cannot return them. */
#include "openvino/datatype.h"

static const struct datatype table[] = {
    {SLUICE_BOOL, BOOLEAN, 1}, {SLUICE_UINT8, U8, 1},   {SLUICE_UINT16, U16, 2},
    {SLUICE_UINT32, U32, 4},   {SLUICE_UINT64, U64, 8}, {SLUICE_INT8, I8, 1},
    {SLUICE_INT16, I16, 2},    {SLUICE_INT32, I32, 4},  {SLUICE_INT64, I64, 8},
    {SLUICE_FP16, F16, 2},     {SLUICE_FP32, F32, 4},   {SLUICE_FP64, F64, 8},
    {SLUICE_BF16, BF16, 2},
};

enum { N_ROWS = sizeof(table) / sizeof(table[0]) };

/* In the order of ov_element_type_e. */
static const char *const words[] = {
    "dynamic", "boolean", "bf16", "f16",    "f32",    "f64",    "i4",     "i8",     "i16",
    "i32",     "i64",     "u1",   "u2",     "u3",     "u4",     "u6",     "u8",     "u16",
    "u32",     "u64",     "nf4",  "f8e4m3", "f8e5m2", "string", "f4e2m1", "f8e8m0",
};

const struct datatype *datatype_of_ours(sluice_datatype ours) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (table[i].ours == ours) {
            return &table[i];
        }
    }
    return NULL;
}

const struct datatype *datatype_of_theirs(ov_element_type_e theirs) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (table[i].theirs == theirs) {
            return &table[i];
        }
    }
    return NULL;
}

const char *datatype_word(ov_element_type_e theirs) {
    size_t index = (size_t)theirs;
    return index < sizeof(words) / sizeof(words[0]) ? words[index] : "of a newer kind";
}
