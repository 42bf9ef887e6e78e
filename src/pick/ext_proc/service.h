/* The ext-proc service on a gRPC server: envoy.service.ext_proc.v3.ExternalProcessor/Process. A
 * call is a session (pick/session/session.h); this gives it messages as long as its answers are
 * taken, the time, and the reader of its worker.
 *
 * Thread: pick_service_new, _looked and _free on the main thread; methods on any worker. */
#ifndef SLUICE_PICK_EXT_PROC_SERVICE_H
#define SLUICE_PICK_EXT_PROC_SERVICE_H

#include "net/server/grpc/server.h"
#include "pick/session/session.h"
#include "pick/session/stats.h"

#define PICK_SERVICE_NAME "envoy.service.ext_proc.v3.ExternalProcessor"

struct pick_service_options {
    struct pool_set *pools;
    struct pick_limits limits;
    struct worker *const *workers; /* those of the server */
    size_t n_workers;
};

struct pick_service;

/* Returns: ST_NO_MEMORY. Owns: *out until pick_service_free, which is after the server's end. */
enum status pick_service_new(const struct pick_service_options *options, struct pick_service **out,
                             struct error *err) __attribute__((warn_unused_result));
void pick_service_free(struct pick_service *service);
/* The row for grpc_server_new; lives as long as the service. */
struct grpc_method pick_service_method(struct pick_service *service);
/* What each worker has written down. Thread: any. */
enum { PICK_MAX_STATS = 256 };
size_t pick_service_stats(const struct pick_service *service,
                          const struct pick_stats *out[PICK_MAX_STATS]);
/* A pool is another now, or there are others: every worker's reader looks at it soon, so that the
 * old one is freed.
 * Thread: any. */
void pick_service_refresh(struct pick_service *service);

/* Server reflection (grpcurl and the like): the rows for grpc_server_new. */
enum { PICK_REFLECTION_METHODS = 2 };
void pick_reflection_methods(struct grpc_method methods[PICK_REFLECTION_METHODS]);

#endif
