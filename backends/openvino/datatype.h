/* Datatypes in both worlds: ours and OpenVINO's, one row each. */
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

/* `ours` is one that a model was described with. */
const struct datatype *datatype_of_ours(sluice_datatype ours);
/* Returns: NULL when clients have no such datatype, or the C interface no way to its elements. */
const struct datatype *datatype_of_theirs(ov_element_type_e theirs);
/* OpenVINO's word for an element type that can't be served: "f8e4m3". */
const char *datatype_word(ov_element_type_e theirs);

#endif
