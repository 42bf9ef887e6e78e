/* The client's half of response.h: the body of an answer becomes an infer_response whose binary
 * tensors are views of the body. Believes nothing that the server says of sizes. */
#ifndef SLUICE_CODEC_KSERVE_RESPONSE_DECODE_H
#define SLUICE_CODEC_KSERVE_RESPONSE_DECODE_H

#include "codec/kserve/request.h"

struct v2_client_response {
    struct str id; /* empty: none */
    struct str model_name;
    struct str model_version;    /* empty: none */
    struct infer_response infer; /* `params` and `outputs`; `release` is NULL, `error` ST_OK */
    const enum v2_form *forms;   /* how each output came: V2_FORM_JSON or V2_FORM_BINARY */
};

/* Decodes the body of a 200 answer. `json_bytes` is the value of Inference-Header-Content-Length,
 * or body.len where that is absent. `body` must stay as long as the answer. Each output has its
 * name, datatype, shape and exactly as many bytes as these say (BYTES: framed elements, as many as
 * the shape says; BOOL bytes as they came). Returns: BAD_JSON with the offset; BAD_FIELD, BAD_DATA,
 * BAD_FRAMING and others with the JSON path ("outputs[0].data[3]"). Owns: everything is in `arena`
 * or `body`.
 * Clause: binary-tensor-data, "Binary Tensor Request" (its response part). */
enum status v2_response_decode(struct arena *arena, struct str body, size_t json_bytes,
                               const struct json_limits *limits, struct v2_client_response *out,
                               struct error *err) __attribute__((warn_unused_result));

#endif
