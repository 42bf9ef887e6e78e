/* The gRPC side of the running server: its services and its listeners. Nothing of it exists where
 * --grpc is `none`. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_GRPC_H
#define SLUICE_PROGRAM_MODEL_SERVER_GRPC_H

#include "net/server/grpc/server.h"
#include "program/model_server/settings.h"
#include "program/process/listen_address.h"
#include "serve/frontend/grpc/api.h"

struct serve_grpc {
    struct grpc_api *api;
    struct header_forward *forward; /* NULL: no pattern */
    struct grpc_server *server;     /* NULL: --grpc none */
};

/* What its services work on; each stays the caller's. */
struct serve_grpc_deps {
    struct repository *repository;
    struct shm_registry *shared;
    struct tracer *tracer;
};

/* How many addresses --grpc names. */
size_t serve_grpc_n_addresses(const struct serve_settings *settings);
/* Makes the server and listens on each address, with `tls` where it is spoken; `bound`
 * (serve_grpc_n_addresses of them) gets the real ones. `options` are the server's, without limits
 * and methods. Returns: why it can't be; what was made until then is for serve_grpc_free. */
enum status serve_grpc_open(struct serve_grpc *self, const struct serve_settings *settings,
                            const struct serve_grpc_deps *use,
                            const struct grpc_server_options *options, const struct tls_server *tls,
                            struct listen_address *bound, struct error *err)
    __attribute__((warn_unused_result));
/* Clients are told to go elsewhere. */
void serve_grpc_drain(struct serve_grpc *self);
/* What is served may have changed: tells those who watch. Thread: any. */
void serve_grpc_on_models_changed(struct serve_grpc *self);
/* After the workers have ended. */
void serve_grpc_free(struct serve_grpc *self);

#endif
