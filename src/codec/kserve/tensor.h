/* One tensor of a request or a response: name, shape, datatype, and either its data in JSON or
 * the size of its data after the JSON. */
#ifndef SLUICE_CODEC_KSERVE_TENSOR_H
#define SLUICE_CODEC_KSERVE_TENSOR_H

#include "codec/kserve/params.h"
#include "codec/kserve/request.h"
#include "core/tensor/tensor.h"

/* The bytes that follow the JSON; tensors take them in order. */
struct v2_binary {
    struct str rest;    /* not yet taken */
    size_t n_bytes;     /* of all tensors */
    bool is_all_json;   /* the whole body was JSON: Inference-Header-Content-Length announced no
                         binary part */
    bool may_lack_data; /* of a response: the tensor is in shared memory then */
};

/* The bytes of `body` after the first `json_bytes`. */
struct v2_binary v2_binary_start(struct str body, size_t json_bytes);

struct v2_tensor {
    struct tensor tensor;       /* its bytes are views of the body, or in the tree's arena */
    struct params params;       /* without the protocol's own */
    enum v2_form form;          /* V2_FORM_JSON or V2_FORM_BINARY; V2_FORM_DEFAULT: in `region` */
    struct infer_region region; /* of an input, in shared memory */
    yyjson_val *data;           /* for V2_FORM_JSON */
};

/* Reads the object `val`, an element of "inputs" (`of` is V2_PARAMS_OF_INPUT) or of a response's
 * "outputs" (V2_PARAMS_OF_OUTPUT). Its bytes are taken from `binary` or read from "data".
 * Returns: BAD_FIELD, BAD_DATATYPE, BAD_SHAPE, BAD_DATA, BAD_FRAMING, TOO_MANY_ELEMENTS with the
 * path.
 * Clause: OIP, request input and response output; binary-tensor-data "Binary Tensor Request". */
enum status v2_tensor_read(const struct json_tree *tree, yyjson_val *val, enum v2_params_of of,
                           const struct json_limits *limits, struct v2_binary *binary,
                           struct v2_tensor *out, struct error *err) SLUICE_MUST_USE;

/* After the last tensor: checks that no bytes are left. */
enum status v2_binary_check_consumed(const struct v2_binary *binary, const struct json_tree *tree,
                                     struct error *err) SLUICE_MUST_USE;

#endif
