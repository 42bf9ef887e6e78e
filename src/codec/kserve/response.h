/* The response to a KServe v2 inference over HTTP: the JSON part, and the pieces of the binary
 * outputs, which are never copied. */
#ifndef SLUICE_CODEC_KSERVE_RESPONSE_H
#define SLUICE_CODEC_KSERVE_RESPONSE_H

#include "codec/kserve/request.h"

struct v2_response {
    struct str json;
    const struct piece *pieces; /* json first, then the binary outputs in order */
    size_t n_pieces;
    uint64_t n_bytes; /* of all pieces */
    bool binary;      /* at least one output byte follows the JSON: the response is
                         application/octet-stream and has Inference-Header-Content-Length */
};

/* Returns: bytes of the outputs that v2_response_encode prints as JSON. */
uint64_t v2_response_json_bytes(const struct v2_request *request,
                                const struct infer_response *response);
/* Encodes. Output i has the form of requested output i, else the request's default. Keys are in
 * the order id, model_name, model_version, parameters, outputs. Floats are printed so that
 * parsing gives the same bits; non-finite ones as request->non_finite says. Returns: ST_NOT_UTF8
 * for a BYTES output that was not requested as binary (the error text names binary_data);
 * ST_BAD_OUTPUT for an output that no form can carry. Owns: everything is in `arena` or the
 * response's own bytes. */
enum status v2_response_encode(struct arena *arena, const struct model_spec *model,
                               const struct v2_request *request,
                               const struct infer_response *response, struct v2_response *out,
                               struct error *err) SLUICE_MUST_USE;

#endif
