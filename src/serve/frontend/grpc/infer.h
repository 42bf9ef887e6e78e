/* An inference that came over gRPC: from a message to the model and back to pieces. ModelInfer and
 * ModelStreamInfer differ in what they do around it. For the grpc_*.c files of this room only. */
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
    struct shm_request memory; /* of the client's */
    struct grpc_call *rpc;
    struct grpc_message *message;
    const struct model_spec *spec;
    const struct labels *labels; /* of its outputs */
    bool submitted;              /* the call is with the model */
    bool queued;                 /* it was, at least once: errors since are the model's */
    struct trace *trace;
    /* Given the answer (or error) of the model, the last of a decoupled one; on the worker. */
    void (*done)(struct grpc_infer *infer);
    /* Given each answer of a decoupled model before that, to be released. NULL: such models are
     * refused. */
    void (*on_partial_response)(struct grpc_infer *infer, struct infer_response *response);
};

/* Returns: NULL when out of memory; the message is still the caller's then. */
struct grpc_infer *grpc_infer_new(struct grpc_call *rpc, struct grpc_message *message,
                                  void (*done)(struct grpc_infer *infer));
/* Decodes, checks, and submits it. `done` is called exactly once, perhaps before this returns;
 * infer->call.response has what came of it. */
void grpc_infer_start(struct grpc_infer *infer);
/* Its answer has left, or nobody wants it; before its memory goes. */
void grpc_infer_fini(struct grpc_infer *infer);
/* Nobody waits any more. */
void grpc_infer_cancel(struct grpc_infer *infer);
/* The last answer as pieces of a message. Returns: the model's error, or why its answer can't be
 * expressed. */
enum status grpc_infer_encode(struct grpc_infer *infer, bool stream, struct v2_grpc_message *out,
                              struct error *err) __attribute__((warn_unused_result));

/* ModelStreamInfer (infer_stream.c). */
grpc_event_cb grpc_infer_stream_step;

#endif
