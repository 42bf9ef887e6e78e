/* Datatypes and kinds of parameters shared by the public interfaces of Sluice. The values are part
 * of the backend ABI (sluice/backend.h) and of the client ABI (sluice/client.h). */
#ifndef SLUICE_TYPES_H
#define SLUICE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enumerations have 32 bits, also in C++, where they can hold the numbers that later versions
 * add. */
#if defined(__cplusplus)
#define SLUICE_32_BITS : int32_t
#else
#define SLUICE_32_BITS
#endif

typedef enum sluice_datatype SLUICE_32_BITS {
    SLUICE_BOOL = 1, /* one byte, 0 or 1 */
    SLUICE_UINT8 = 2,
    SLUICE_UINT16 = 3,
    SLUICE_UINT32 = 4,
    SLUICE_UINT64 = 5,
    SLUICE_INT8 = 6,
    SLUICE_INT16 = 7,
    SLUICE_INT32 = 8,
    SLUICE_INT64 = 9,
    SLUICE_FP16 = 10,
    SLUICE_FP32 = 11,
    SLUICE_FP64 = 12,
    SLUICE_BYTES = 13, /* per element: 4-byte length, then the bytes */
    SLUICE_BF16 = 14
} sluice_datatype;

#if defined(__cplusplus)
static_assert(sizeof(sluice_datatype) == 4, "compile without -fshort-enums");
#else
_Static_assert(sizeof(sluice_datatype) == 4, "compile without -fshort-enums");
#endif

/* Type of a named value in a client's request or in a model's configuration. */
typedef enum sluice_param_kind SLUICE_32_BITS {
    SLUICE_PARAM_BOOL = 0,
    SLUICE_PARAM_INT64 = 1,
    SLUICE_PARAM_UINT64 = 2, /* only for values above INT64_MAX */
    SLUICE_PARAM_DOUBLE = 3,
    SLUICE_PARAM_STRING = 4
} sluice_param_kind;

#ifdef __cplusplus
}
#endif

#endif
