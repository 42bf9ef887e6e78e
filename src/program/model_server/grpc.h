/* The gRPC server of the running process: its services and its listeners. With --grpc none it has
 * neither, and is there for REST over HTTP/2 unless --grpc-on-http is false. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_GRPC_H
#define SLUICE_PROGRAM_MODEL_SERVER_GRPC_H

#include "net/server/grpc/server.h"
#include "program/model_server/settings.h"
#include "program/process/listen_address.h"
#include "serve/frontend/grpc/methods.h"

struct serve_grpc {
    struct grpc_api *api;           /* NULL: --grpc none */
    struct header_forward *forward; /* NULL: no pattern */
    struct grpc_server *server;     /* NULL: --grpc none, and no HTTP/2 at --http */
};

/* Creates the server and listens on each address of --grpc, with `tls` where TLS is used; `bound`
 * (one for each) gets the actual addresses. `options` are the server's, with limits.net, but
 * without the other limits and without methods. Returns: why it failed; serve_grpc_free frees what
 * was created. */
enum status serve_grpc_open(struct serve_grpc *self, const struct serve_settings *settings,
                            const struct inference_services *services,
                            const struct grpc_server_options *options, const struct tls_server *tls,
                            struct listen_address *bound, struct error *err) SLUICE_MUST_USE;
/* Tells clients to use another server. */
void serve_grpc_drain(struct serve_grpc *self);
/* Models may have changed: notifies the Health/Watch streams. Thread: any. */
void serve_grpc_on_models_changed(struct serve_grpc *self);
/* Call it after the workers have ended. */
void serve_grpc_free(struct serve_grpc *self);

#endif
