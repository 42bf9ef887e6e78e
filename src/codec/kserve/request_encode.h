/* The client's half of request.h: an infer_request becomes a JSON object and the pieces of the
 * inputs that are sent as binary, which are never copied. */
#ifndef SLUICE_CODEC_KSERVE_REQUEST_ENCODE_H
#define SLUICE_CODEC_KSERVE_REQUEST_ENCODE_H

#include "codec/kserve/request.h"

/* Returns: an array of `n` times the same form, in `arena`; NULL when out of memory. */
const enum v2_form *v2_forms_all(struct arena *arena, size_t n, enum v2_form form);

struct v2_request_body {
    struct str json;            /* empty for a raw request */
    const struct piece *pieces; /* the JSON first, then the binary inputs in order */
    size_t n_pieces;
    uint64_t n_bytes; /* of all pieces: the Content-Length */
    bool binary;      /* the body is application/octet-stream and needs
                         Inference-Header-Content-Length: json.len; else it is application/json */
};

/* Encodes. `request->infer.inputs` have names, datatypes, shapes (every dimension >= 0) and
 * bytes as in core/tensor/tensor.h, or a region of shared memory in place of bytes; sizes must fit
 * shapes. Requested outputs may have a region, or the number of their classes. `forms` has one form
 * per input: V2_FORM_JSON or V2_FORM_BINARY; V2_FORM_DEFAULT and a NULL array mean binary.
 * Requested output i has the form request->forms[i], or request->binary_default where that is
 * V2_FORM_DEFAULT or request->forms is NULL; it is written for each output, because servers differ
 * in what `binary_data_output` covers. Returns: ST_BAD_SHAPE or ST_BAD_DATA for a size that does
 * not fit the shape; ST_NOT_UTF8 for a BYTES input that is not UTF-8 and has form JSON. Owns:
 * everything is in `arena` or the tensors' own bytes.
 * Clause: binary-tensor-data "Binary Tensor Request"; OIP, inference request. */
enum status v2_request_encode(struct arena *arena, const struct v2_request *request,
                              const enum v2_form *forms, struct v2_request_body *out,
                              struct error *err) SLUICE_MUST_USE;

#endif
