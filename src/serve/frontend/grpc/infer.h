/* An inference over gRPC, from a message to the model and back to pieces: what ModelInfer and
 * ModelStreamInfer share. */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_INFER_H
#define SLUICE_SERVE_FRONTEND_GRPC_INFER_H

#include "codec/kserve/grpc/v2_grpc.h"
#include "core/base/compiler.h"
#include "net/server/grpc/server.h"
#include "serve/frontend/client_inference.h"
#include "serve/frontend/grpc/methods.h"

/* Lives in the message's arena. */
struct grpc_infer {
    struct client_inference inference;
    struct v2_grpc_request request;
    bool typed; /* responses have typed contents */
    struct grpc_call *rpc;
    struct grpc_message *message;
};

static inline struct grpc_infer *grpc_infer_of(struct client_inference *inference) {
    return CONTAINER_OF(inference, struct grpc_infer, inference);
}

/* An encoded response, as it is sent. */
struct grpc_infer_response {
    struct v2_grpc_message message;
    struct piece compressed; /* sent in its place, if `is_compressed` */
    bool is_compressed;
};

/* Initializes a zeroed struct; the message is the caller's. */
void grpc_infer_init(struct grpc_infer *infer, const struct inference_protocol *protocol,
                     struct grpc_call *rpc, struct grpc_message *message);

/* Once for each call. */
void grpc_infer_count_picked(const struct grpc_call *call);

/* Steps of both methods for the protocol's table. */
struct trace *grpc_infer_begin_trace(struct client_inference *inference, struct tracer *tracer);
enum status grpc_infer_decode(struct client_inference *inference,
                              struct error *err) SLUICE_MUST_USE;
uint64_t grpc_infer_decode_ns(const struct client_inference *inference);
enum status grpc_infer_forward_metadata(struct client_inference *inference, struct params *params,
                                        struct error *err) SLUICE_MUST_USE;

/* Encodes a response; `final` as in v2_grpc_response_encode. A large one is compressed, if it is
 * sent so. */
enum status grpc_infer_encode_response(struct client_inference *inference,
                                       struct infer_response *response, struct arena *arena,
                                       bool stream, int final, struct grpc_infer_response *out,
                                       struct error *err) SLUICE_MUST_USE;
/* Returns: the time of compressing it. */
uint64_t grpc_infer_encode_ns(const struct client_inference *inference,
                              const struct infer_response *response);
/* Sends it: grpc_send. */
void grpc_infer_send(struct grpc_infer *infer, const struct grpc_infer_response *response,
                     void (*release)(void *user), void *user);

/* Encodes the last response as pieces of a message, and counts the inference. Returns: as
 * client_inference_encode. */
enum status grpc_infer_encode(struct grpc_infer *infer, struct grpc_infer_response *out,
                              struct error *err) SLUICE_MUST_USE;

#endif
