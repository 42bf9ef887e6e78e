/* The readers of JSON elements, one per kind of datatype. Each goes through the memory of an
 * array's values, where nested arrays are headers between the elements, and writes packed
 * elements. */
#ifndef SLUICE_CODEC_KSERVE_DATA_ELEMENTS_H
#define SLUICE_CODEC_KSERVE_DATA_ELEMENTS_H

#include "codec/json/tree.h"
#include "core/tensor/datatype.h"

/* How a reader of elements ends. */
struct v2_elements {
    uint64_t n;      /* read; one more than there was room for when there are more */
    yyjson_val *bad; /* the value that is no element of this datatype; NULL: none */
};

/* Each reads `span`, whose first value is the array itself, into `out`, which has room for `max`
 * elements; it stops where there is one more, or one that is no element. */
struct v2_elements v2_data_read_bools(struct json_span span, unsigned char *out, uint64_t max);
struct v2_elements v2_data_read_integers(struct json_span span, enum datatype datatype,
                                         unsigned char *out, uint64_t max);
struct v2_elements v2_data_read_floats(struct json_span span, enum datatype datatype,
                                       unsigned char *out, uint64_t max);

#endif
