/* The `parameters` of a request, an input or an output: the protocol's own ones are decoded
 * here, all others are passed to the model. */
#ifndef SLUICE_CODEC_KSERVE_PARAMS_H
#define SLUICE_CODEC_KSERVE_PARAMS_H

#include "codec/json/tree.h"
#include "codec/kserve/request.h"
#include "core/tensor/infer.h"

/* The object that has the parameters; each has its own protocol keys. */
enum v2_params_of {
    V2_PARAMS_OF_REQUEST,          /* binary_data_output, non_finite */
    V2_PARAMS_OF_INPUT,            /* binary_data_size, shared_memory_… */
    V2_PARAMS_OF_REQUESTED_OUTPUT, /* binary_data, classification, shared_memory_… */
    V2_PARAMS_OF_RESPONSE,         /* none */
    V2_PARAMS_OF_OUTPUT,           /* binary_data_size; others are ignored */
};

struct v2_protocol_params {
    yyjson_val *size;              /* value of binary_data_size, for error paths; NULL: absent */
    uint64_t n_bytes;              /* binary_data_size */
    enum v2_form form;             /* binary_data, or binary_data_output; V2_FORM_DEFAULT: absent */
    yyjson_val *classification;    /* as `size` */
    uint64_t n_classes;            /* classification */
    enum v2_non_finite non_finite; /* V2_NON_FINITE_DEFAULT: absent */
    struct infer_region region;    /* shared_memory_region, _offset, _byte_size */
    yyjson_val *offset, *bytes;    /* as `size` */
};

/* Reads `object`, the value of "parameters". Values are strings, numbers and booleans; of equal
 * keys the first counts. Returns: BAD_FIELD with the path for values of other types, for keys
 * that begin with "triton_" (reserved), for the protocol's own keys with a wrong type, and for
 * contradictory ones. Owns: *out is in the tree's arena and its strings in the tree.
 * Clause: OIP, parameters; binary-tensor-data "Binary Tensor Request". */
enum status v2_params_read(const struct json_tree *tree, yyjson_val *object, enum v2_params_of of,
                           struct v2_protocol_params *wire, struct params *out,
                           struct error *err) SLUICE_MUST_USE;

/* Reads the value of `non_finite`; of equal keys the first counts, so *out is unchanged where it is
 * set. Returns: BAD_FIELD if it is not "words", "null" or "strings". */
enum status v2_non_finite_read(const struct json_tree *tree, yyjson_val *val,
                               enum v2_non_finite *out, struct error *err) SLUICE_MUST_USE;

/* Reads the value of one parameter. Returns: BAD_FIELD if it is not a string, number or boolean. */
enum status v2_param_value_read(const struct json_tree *tree, yyjson_val *val, struct param *out,
                                struct error *err) SLUICE_MUST_USE;

#endif
