/* One tensor as both directions of KServe v2 write it: name, shape, datatype, and either the data
 * in JSON or how many bytes of it follow behind the JSON. */
#ifndef SLUICE_CODEC_KSERVE_TENSOR_H
#define SLUICE_CODEC_KSERVE_TENSOR_H

#include "codec/kserve/params.h"
#include "codec/kserve/request.h"
#include "core/tensor/tensor.h"

/* The bytes behind the JSON, which tensors take in turn. */
struct v2_binary {
    struct str rest;  /* not yet taken */
    size_t n_bytes;   /* all of them */
    bool is_all_json; /* the whole body was JSON: nobody said that there is more */
};

/* What follows the first `json_bytes` of `body`. */
struct v2_binary v2_binary_start(struct str body, size_t json_bytes);

struct v2_tensor {
    struct tensor tensor;       /* its bytes are views of the body, or in the tree's arena */
    struct params params;       /* without the wire's */
    enum v2_form form;          /* V2_FORM_JSON or V2_FORM_BINARY; V2_FORM_DEFAULT: in `region` */
    struct infer_region region; /* of an input */
    yyjson_val *data;           /* for V2_FORM_JSON */
};

/* Reads the object `val`, an element of "inputs" (`of` is V2_PARAMS_OF_INPUT) or of an answer's
 * "outputs" (V2_PARAMS_OF_OUTPUT). Its bytes are taken from `binary` or read from "data". Returns:
 * BAD_FIELD, BAD_DATATYPE, BAD_SHAPE, BAD_DATA, BAD_FRAMING, TOO_MANY_ELEMENTS by the path.
 * Clause: OIP, request input and response output; binary-tensor-data "Binary Tensor Request". */
enum status v2_tensor_read(const struct json_tree *tree, yyjson_val *val, enum v2_params_of of,
                           const struct json_limits *limits, struct v2_binary *binary,
                           struct v2_tensor *out, struct error *err)
    __attribute__((warn_unused_result));

/* After the last tensor: nothing may be left. */
enum status v2_binary_check_consumed(const struct v2_binary *binary, const struct json_tree *tree,
                                     struct error *err) __attribute__((warn_unused_result));

#endif
