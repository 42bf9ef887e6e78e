/* KServe v2 over gRPC: the front end between the gRPC server and the models. One table has a row
 * for each method; inference is infer.c's and infer_stream.c's, health health.c's.
 * What bytes mean is `wire`'s business, what a model does is `model`'s.
 *
 * Thread: grpc_api_new, _drain and _free on the main thread; methods on any worker. */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_API_H
#define SLUICE_SERVE_FRONTEND_GRPC_API_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codec/kserve/request.h"
#include "net/server/grpc/server.h"
#include "serve/repository/repository.h"

struct header_forward;
struct tracer;

struct grpc_api_options {
    struct repository *repository;
    struct json_limits limits;
    struct shm_registry *shared;          /* serve/frontend/shm_registry.h */
    struct tracer *tracer;                /* serve/trace/tracer.h */
    const char *server_name;              /* metadata: name */
    const char *server_version;           /* metadata: version */
    const struct header_forward *forward; /* metadata for models; NULL: none */
    size_t max_in_flight;          /* requests of one ModelStreamInfer that are not answered yet */
    struct worker *const *workers; /* those of the server; for Health's Watch */
    size_t n_workers;
};

struct grpc_api;

/* Returns: ST_NO_MEMORY. Owns: *out until grpc_api_free, which is after the server's end. */
enum status grpc_api_new(const struct grpc_api_options *options, struct grpc_api **out,
                         struct error *err) __attribute__((warn_unused_result));
void grpc_api_free(struct grpc_api *api);
/* For grpc_server_options.admit, with the keys (serve/frontend/keys.h) as its context: the method's
 * row names the group whose keys are needed. */
enum status grpc_api_admit(const struct grpc_call *call, void *keys, struct error *err)
    __attribute__((warn_unused_result));
/* The table for grpc_server_new; lives as long as the api. */
const struct grpc_method *grpc_api_methods(const struct grpc_api *api, size_t *n);
/* The state of the server or of a model may have changed: tells those who watch. Thread: any. */
void grpc_api_notify_health_watchers(struct grpc_api *api);
/* ServerReady says no from now on; calls are still served. Thread: any. */
void grpc_api_drain(struct grpc_api *api);

#endif
