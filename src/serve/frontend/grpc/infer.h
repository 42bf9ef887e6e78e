/* An inference over gRPC, from a message to the model and back to pieces: what ModelInfer and
 * ModelStreamInfer share. */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_INFER_H
#define SLUICE_SERVE_FRONTEND_GRPC_INFER_H

#include "codec/kserve/grpc/v2_grpc.h"
#include "net/server/grpc/server.h"
#include "serve/frontend/grpc/method.h"
#include "serve/frontend/shm_registry.h"
#include "serve/scheduler/call.h"
#include "serve/trace/trace.h"

/* Lives in the message's arena. */
struct grpc_infer {
    struct call call;
    struct v2_grpc_request request;
    struct shm_request shm; /* shared memory of the client */
    struct grpc_call *rpc;
    struct grpc_message *message;
    const struct model_spec *spec;
    const struct labels *labels; /* one per output of the model */
    bool submitted;              /* the call is in flight */
    bool queued;                 /* it was submitted: errors from then on are the model's */
    struct trace *trace;
    /* The response (or error) of the model is in call.response; for a decoupled model, the last
     * one. Thread: the worker. */
    void (*done)(struct grpc_infer *infer);
    /* Called with each earlier response of a decoupled model; the callee releases it. NULL:
     * decoupled models are rejected. */
    void (*on_partial_response)(struct grpc_infer *infer, struct infer_response *response);
};

/* Returns: NULL when out of memory; the caller still owns the message then. */
struct grpc_infer *grpc_infer_new(struct grpc_call *rpc, struct grpc_message *message,
                                  void (*done)(struct grpc_infer *infer));
/* Decodes, checks and submits the request. `done` is called exactly once, possibly before this
 * returns; infer->call.response has the result. */
void grpc_infer_start(struct grpc_infer *infer);
/* Ends the inference: its response was sent or is not needed. Call it before the message is freed.
 */
void grpc_infer_fini(struct grpc_infer *infer);
/* Cancels the call if it is in flight; `done` is still called. */
void grpc_infer_cancel(struct grpc_infer *infer);
/* Encodes the (last) response as pieces of a message. Returns: the model's error, or why the
 * response cannot be encoded. */
enum status grpc_infer_encode(struct grpc_infer *infer, bool stream, struct v2_grpc_message *out,
                              struct error *err) SLUICE_MUST_USE;

/* ModelStreamInfer (infer_stream.c). */
grpc_event_cb grpc_infer_stream_step;

#endif
