/* KServe v2 over gRPC: the front end between the gRPC server and the models. One table has a row
 * for each method; inference is in infer.c and infer_stream.c, health in health.c.
 *
 * Thread: grpc_api_new, _drain and _free on the main thread; methods on any worker. */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_METHODS_H
#define SLUICE_SERVE_FRONTEND_GRPC_METHODS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "net/server/grpc/server.h"
#include "serve/frontend/client_inference.h"

struct header_forward;
struct keys;

struct grpc_api_options {
    struct inference_services services;
    const char *server_name;               /* metadata: name */
    const char *server_version;            /* metadata: version */
    const struct header_forward *forward;  /* metadata forwarded to models; NULL: none */
    const struct keys *keys;               /* of grpc_api_admit; NULL: none */
    enum v2_grpc_contents output_contents; /* of requests without that parameter */
    size_t max_in_flight;                  /* unanswered requests of one ModelStreamInfer */
    struct worker *const *workers;         /* workers of the server, for Health/Watch */
    size_t n_workers;
};

struct grpc_api;

/* Returns: ST_NO_MEMORY. Owns: *out until grpc_api_free, after the server has stopped. */
enum status grpc_api_new(const struct grpc_api_options *options, struct grpc_api **out,
                         struct error *err) SLUICE_MUST_USE;
void grpc_api_free(struct grpc_api *api);
/* For grpc_server_options.admit, with the keys (serve/frontend/keys.h) as its argument: checks the
 * key group of the method's row. */
enum status grpc_api_admit(const struct grpc_call *call, void *keys,
                           struct error *err) SLUICE_MUST_USE;
/* For grpc_server_options.keeps_field, with the api as its argument: keys, traces, the kind of a
 * stream's errors, and what is forwarded to models. */
bool grpc_api_keeps_field(struct str name, void *api);
/* The method table for grpc_server_new; lives as long as the api. */
const struct grpc_method *grpc_api_methods(const struct grpc_api *api, size_t *n);
/* page.c: sets how the pages of gRPC are printed. */
void grpc_pages_list(struct shared_page_printing kinds[PAGE_KINDS], struct repository *repository);
/* The state of the server or of a model may have changed: notifies the streams of Health/Watch.
 * Thread: any. */
void grpc_api_notify_health_watchers(struct grpc_api *api);
/* ServerReady answers false from now on; calls are still served. Thread: any. */
void grpc_api_drain(struct grpc_api *api);

#endif
