/* The calls of KServe v2 over gRPC: requests become the path and the message of a unary call, and
 * its answer is decoded and checked as one over HTTP (v2.h). */
#ifndef SLUICE_CLIENT_V2_GRPC_H
#define SLUICE_CLIENT_V2_GRPC_H

#include "client/v2.h"
#include "codec/kserve/grpc/v2_grpc.h"

/* "/inference.GRPCInferenceService/…" */
#define CLIENT_GRPC_PATH(method) STR("/inference.GRPCInferenceService/" method)

struct client_grpc_request {
    struct str path; /* static */
    const struct piece *pieces;
    size_t n_pieces;
};

/* Encode a request. Returns: as client_query_encode; ST_UNSUPPORTED for tensors that are not
 * binary, ST_BAD_SHAPE or ST_BAD_DATA for one whose bytes don't fit its shape and for names that
 * are not UTF-8; ST_BAD_OUTPUT over 2^31 - 1 bytes. Owns: in `arena`, except the tensors' own
 * bytes. */
enum status client_grpc_query_encode(struct arena *arena, const struct client_query_args *args,
                                     struct client_grpc_request *out,
                                     struct error *err) SLUICE_MUST_USE;
enum status client_grpc_infer_encode(struct arena *arena, const struct client_infer *infer,
                                     struct client_grpc_request *out,
                                     struct error *err) SLUICE_MUST_USE;
/* Copies a request to one block. Returns: ST_NO_MEMORY. Owns: the caller, out->data, by free. */
enum status client_grpc_request_join(const struct client_grpc_request *request, struct piece *out,
                                     struct error *err) SLUICE_MUST_USE;
/* Encodes a ModelInferRequest as it is, for requests whose tensors are known to be good. */
enum status client_grpc_infer_message(struct arena *arena, const struct client_infer *infer,
                                      struct v2_grpc_message *out,
                                      struct error *err) SLUICE_MUST_USE;

/* Decode an answer's message. Each output of an inference has a name, a datatype, a shape and
 * exactly the number of bytes that these require; or none, if `may_lack_data`, because they are in
 * shared memory. Returns: ST_BAD_ANSWER with the reason;
 * ST_BODY_TOO_LARGE for a document of more than `max_bytes` as JSON. Owns: in `arena`, or views of
 * `message`. */
enum status client_grpc_infer_decode(struct arena *arena, struct str message, bool may_lack_data,
                                     struct v2_client_response *out,
                                     struct error *err) SLUICE_MUST_USE;
/* A ModelStreamInferResponse. Returns: ST_REFUSED with its error_message, too. */
enum status client_grpc_stream_decode(struct arena *arena, struct str message, bool may_lack_data,
                                      struct v2_client_response *out,
                                      struct error *err) SLUICE_MUST_USE;
enum status client_grpc_model_decode(struct arena *arena, struct str message,
                                     struct model_spec *out, struct error *err) SLUICE_MUST_USE;
enum status client_grpc_server_decode(struct arena *arena, struct str message,
                                      struct v2_server_metadata *out,
                                      struct error *err) SLUICE_MUST_USE;
enum status client_grpc_yes_decode(struct str message, bool *yes,
                                   struct error *err) SLUICE_MUST_USE;
enum status client_grpc_text_decode(struct arena *arena, enum client_query query,
                                    struct str message, uint64_t max_bytes, struct str *out,
                                    struct error *err) SLUICE_MUST_USE;

#endif
