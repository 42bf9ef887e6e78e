/* The messages of inference.GRPCInferenceService that carry inferences and metadata, decoded to
 * and encoded from structs with codec/protobuf/pb.h. Tensors of `raw_input_contents` are views
 * of the message; outputs are pieces that stay where the backend left them.
 *
 * Field numbers are those of proto/grpc_service.proto (ours, wire-compatible). */
#ifndef SLUICE_CODEC_KSERVE_GRPC_V2_GRPC_H
#define SLUICE_CODEC_KSERVE_GRPC_V2_GRPC_H

#include "codec/kserve/metadata.h"
#include "codec/kserve/request.h"
#include "core/base/buf.h"
#include "core/tensor/infer.h"

/* Where a response has its outputs' elements. */
enum v2_grpc_contents {
    V2_GRPC_CONTENTS_DEFAULT, /* of a request: as the server's setting says */
    V2_GRPC_CONTENTS_RAW,     /* raw_output_contents */
    V2_GRPC_CONTENTS_TYPED,   /* `contents` of each output */
    V2_GRPC_CONTENTS_SAME,    /* typed where the request has typed contents, else raw */
};

/* A ModelInferRequest. */
struct v2_grpc_request {
    struct infer_request infer;
    struct str model;
    struct str version; /* "": the server chooses */
    bool empty_final;   /* triton_enable_empty_final_response: also send an empty final response */
    bool has_contents;  /* some input has typed contents */
    enum v2_grpc_contents output_contents; /* the parameter of that name */
};

/* Returns: whether the response has typed contents; `setting`: of the server. */
static inline bool v2_grpc_request_wants_typed(const struct v2_grpc_request *request,
                                               enum v2_grpc_contents setting) {
    enum v2_grpc_contents wanted =
        request->output_contents != V2_GRPC_CONTENTS_DEFAULT ? request->output_contents : setting;
    return wanted == V2_GRPC_CONTENTS_TYPED ||
           (wanted == V2_GRPC_CONTENTS_SAME && request->has_contents);
}

/* Decodes. Unknown fields are skipped, nesting is bounded (100), strings must be UTF-8, packed
 * and unpacked lists are both read, of a repeated single field the last counts. Inputs are
 * either all raw (one entry of raw_input_contents for each, in order) or all typed; a typed list
 * must be the datatype's own, with every value in its range. FP16 and BF16 are raw only.
 * infer_check checks sizes and shapes. Returns: ST_BAD_REQUEST (not protobuf), ST_BAD_FIELD,
 * ST_BAD_INPUTS, ST_BAD_DATA, ST_TOO_MANY_ELEMENTS, ST_NO_MEMORY, with the field's path
 * ("inputs[0].contents"). Owns: in `arena`, or views of `message`. */
enum status v2_grpc_request_decode(struct arena *arena, struct str message,
                                   const struct json_limits *limits, struct v2_grpc_request *out,
                                   struct error *err) SLUICE_MUST_USE;

/* Returns: bytes of a ModelInferRequest that decoding reads one by one: all but those of raw
 * inputs. An estimate: of a message with very many fields it is the whole. */
size_t v2_grpc_request_walked_bytes(struct str message);

/* Returns: the offset of the first raw input's bytes in a ModelInferRequest, of which
 * `beginning` is the whole or the first part; 0 if it is not there. */
size_t v2_grpc_raw_offset(struct str beginning);

/* How a response is encoded. */
struct v2_grpc_response_form {
    bool typed;  /* outputs have `contents`, unless one has no list for its datatype (FP16, BF16):
                    then all are raw, as a message may not have both */
    bool stream; /* within a ModelStreamInferResponse */
    int final;   /* >= 0: the parameter triton_final_response is added */
};
struct v2_grpc_message {
    const struct piece *pieces;
    size_t n_pieces;
    uint64_t n_bytes;
};
/* Encodes a ModelInferResponse. Outputs that are not typed are in raw_output_contents, one entry
 * each. `pieces` are in the order of sending; the tensors' bytes are not copied where they are the
 * same on the wire (raw; typed FP32 and FP64). Returns: ST_NO_MEMORY, ST_BAD_OUTPUT over 2^31 - 1
 * bytes. */
enum status v2_grpc_response_encode(struct arena *arena, const struct model_spec *model,
                                    struct str id, const struct infer_response *response,
                                    struct v2_grpc_response_form form, struct v2_grpc_message *out,
                                    struct error *err) SLUICE_MUST_USE;
/* Returns: about the number of elements that encoding typed contents converts one by one. */
uint64_t v2_grpc_typed_elements(const struct infer_response *response);
/* Encodes a ModelStreamInferResponse with error_message (never empty), and in infer_response id,
 * model_name and model_version as far as they are known ("" is left out), and
 * triton_final_response where `final` >= 0. */
void v2_grpc_stream_error_encode(struct buf *out, const struct error *error, struct str id,
                                 struct str model, struct str version, int final);

/* Requests with a name and a version: ModelReady, ModelMetadata, ModelConfig, ModelStatistics. */
enum status v2_grpc_named_decode(struct arena *arena, struct str message, struct str *name,
                                 struct str *version, struct error *err) SLUICE_MUST_USE;
/* Requests without fields: checks only that the message is well formed. */
enum status v2_grpc_empty_decode(struct str message, struct error *err) SLUICE_MUST_USE;

/* Responses. */
void v2_grpc_bool_encode(struct buf *out, bool yes); /* ServerLive, ServerReady, ModelReady */
void v2_grpc_server_metadata_encode(struct buf *out, const char *name, const char *version,
                                    const char *const *extensions);
void v2_grpc_model_metadata_encode(struct buf *out, const struct model_spec *spec,
                                   const uint64_t *versions, size_t n_versions);

/* ---- client ---------------------------------------------------------------------------------- */

/* Encodes a ModelInferRequest: inputs raw, as pieces, or in a region of shared memory. */
enum status v2_grpc_request_encode(struct arena *arena, const struct v2_grpc_request *request,
                                   struct v2_grpc_message *out, struct error *err) SLUICE_MUST_USE;

/* A decoded ModelInferResponse. */
struct v2_grpc_client_response {
    struct str model, version, id;
    struct params params;
    struct tensor *outputs; /* views of the message; typed contents are converted into `arena`;
                               without pieces if it has no bytes here */
    size_t n_outputs;
    struct str error_message; /* of a ModelStreamInferResponse */
};
enum status v2_grpc_client_response_decode(struct arena *arena, struct str message, bool stream,
                                           struct v2_grpc_client_response *out,
                                           struct error *err) SLUICE_MUST_USE;

struct v2_grpc_model_metadata {
    struct str name, platform;
    struct str *versions;
    size_t n_versions;
    struct tensor_spec *inputs, *outputs;
    size_t n_inputs, n_outputs;
};
enum status v2_grpc_model_metadata_decode(struct arena *arena, struct str message,
                                          struct v2_grpc_model_metadata *out,
                                          struct error *err) SLUICE_MUST_USE;

/* Requests with a name and a version ("": the server chooses, or all), and the load or unload of a
 * model; `config`: JSON in place of the repository's, ptr NULL: that one. */
void v2_grpc_named_encode(struct buf *out, struct str name, struct str version);
void v2_grpc_repository_encode(struct buf *out, struct str model, struct str config);

/* Responses of ServerLive, ServerReady and ModelReady, and of ServerMetadata. */
enum status v2_grpc_bool_decode(struct str message, bool *yes, struct error *err) SLUICE_MUST_USE;
enum status v2_grpc_server_metadata_decode(struct arena *arena, struct str message,
                                           struct v2_server_metadata *out,
                                           struct error *err) SLUICE_MUST_USE;

/* ---- client and server ----------------------------------------------------------------------- */

/* Responses that are JSON documents over HTTP. */
enum v2_grpc_document {
    V2_GRPC_CONFIG,
    V2_GRPC_STATISTICS,
    V2_GRPC_INDEX,
    V2_GRPC_SERVER_METADATA,
    V2_GRPC_MODEL_METADATA,
};
/* Appends the JSON of a response, of at most `max_bytes`. Returns: as pb_json_print; ST_BAD_FIELD
 * for a ModelConfigResponse without a configuration. */
enum status v2_grpc_document_add(struct buf *out, enum v2_grpc_document document,
                                 struct str message, uint64_t max_bytes,
                                 struct error *err) SLUICE_MUST_USE;
/* The same. Owns: *out is in `arena`, with a NUL after it. */
enum status v2_grpc_document_print(struct arena *arena, enum v2_grpc_document document,
                                   struct str message, uint64_t max_bytes, struct str *out,
                                   struct error *err) SLUICE_MUST_USE;

/* Returns: the offset of the first raw output's bytes in a ModelInferResponse, of which `beginning`
 * is the whole or the first part; 0 if it is not there. */
size_t v2_grpc_raw_output_offset(struct str beginning);

#endif
