/* The request and response messages of ModelInfer (inference.GRPCInferenceService) for the
 * commands. A response is checked like one over HTTP. */
#ifndef SLUICE_PROGRAM_REQUESTS_GRPC_INFER_MESSAGE_H
#define SLUICE_PROGRAM_REQUESTS_GRPC_INFER_MESSAGE_H

#include "client/v2.h"
#include "codec/kserve/grpc/v2_grpc.h"

/* Encodes a request; its inputs are in raw_input_contents. Returns: ST_NO_MEMORY, ST_BAD_OUTPUT
 * over 2^31 - 1 bytes. Owns: in `arena`, except the tensors' own bytes. */
enum status grpc_infer_message_encode(struct arena *arena, const struct client_infer *infer,
                                      struct v2_grpc_message *out,
                                      struct error *err) SLUICE_MUST_USE;
/* Decodes a response. Each output has a name, a datatype, a shape and exactly the number of bytes
 * that these require. Returns: ST_BAD_ANSWER, ST_BAD_DATA, ST_BAD_FRAMING and others with the
 * output's name. Owns: in `arena`, or views of `message`. */
enum status grpc_infer_message_decode(struct arena *arena, struct str message,
                                      struct v2_client_response *out,
                                      struct error *err) SLUICE_MUST_USE;

#endif
