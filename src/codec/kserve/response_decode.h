/* The client's half of response.h: the body of a response becomes an infer_response whose binary
 * tensors are views of the body. All sizes in the body are checked. */
#ifndef SLUICE_CODEC_KSERVE_RESPONSE_DECODE_H
#define SLUICE_CODEC_KSERVE_RESPONSE_DECODE_H

#include "codec/kserve/request.h"

struct v2_client_response {
    struct str id; /* empty: none */
    struct str model_name;
    struct str model_version;    /* empty: none */
    struct infer_response infer; /* `params` and `outputs`; `release` is NULL, `error` ST_OK */
    const enum v2_form *forms;   /* the form of each output: V2_FORM_JSON or V2_FORM_BINARY;
                                    V2_FORM_DEFAULT: it has no data */
};

/* Decodes the body of a 200 response. `json_bytes` is the value of
 * Inference-Header-Content-Length, or body.len if that is absent. `body` must live as long as
 * the response. Each output has its name, datatype, shape and exactly as many bytes as these
 * need (BYTES: framed elements, as many as the shape has; BOOL bytes are not normalized); or no
 * data, if `may_lack_data`, because it is in shared memory.
 * Returns: BAD_JSON with the offset; BAD_FIELD, BAD_DATA, BAD_FRAMING and others with the JSON
 * path ("outputs[0].data[3]"). Owns: everything is in `arena` or `body`.
 * Clause: binary-tensor-data, "Binary Tensor Request" (its response part). */
enum status v2_response_decode(struct arena *arena, struct str body, size_t json_bytes,
                               bool may_lack_data, const struct json_limits *limits,
                               struct v2_client_response *out, struct error *err) SLUICE_MUST_USE;

#endif
