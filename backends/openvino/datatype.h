/* Our datatypes and OpenVINO's, one row each. */
#ifndef SLUICE_OPENVINO_DATATYPE_H
#define SLUICE_OPENVINO_DATATYPE_H

#include <stddef.h>

#include <openvino/c/ov_common.h>

#include "sluice/backend.h"

struct datatype {
    sluice_datatype ours;
    ov_element_type_e theirs;
    size_t n_bytes; /* of an element */
};

/* `ours` is a datatype of a model's signature. */
const struct datatype *datatype_of_ours(sluice_datatype ours);
/* Returns: NULL when clients have no such datatype or the C interface cannot access its
 * elements. */
const struct datatype *datatype_of_theirs(ov_element_type_e theirs);
/* OpenVINO's name of an element type that is not supported: "f8e4m3". */
const char *datatype_word(ov_element_type_e theirs);

#endif
