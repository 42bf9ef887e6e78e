/* The ext-proc service on a gRPC server: envoy.service.ext_proc.v3.ExternalProcessor/Process. Each
 * call is a session (pick/session/session.h); the service passes it messages, runs its timers and
 * gives it the worker's pool reader.
 *
 * Thread: pick_service_new and _free on the main thread; methods on any worker. */
#ifndef SLUICE_PICK_EXT_PROC_SERVICE_H
#define SLUICE_PICK_EXT_PROC_SERVICE_H

#include "net/server/grpc/server.h"
#include "pick/stream/stream.h"

#define PICK_SERVICE_NAME "envoy.service.ext_proc.v3.ExternalProcessor"

struct pick_service;

/* Memory of an open stream with small headers, as it counts against --client-memory. */
enum { PICK_STREAM_BYTES = 8192 };

/* `shared`: of all workers of the picker. `workers`: of the server. Returns: ST_NO_MEMORY. Owns:
 * *out until pick_service_free, after the server was freed and before `shared` is. */
enum status pick_service_new(struct pick_workers *shared, struct worker *const *workers,
                             size_t n_workers, struct pick_service **out,
                             struct error *err) SLUICE_MUST_USE;
void pick_service_free(struct pick_service *service);
/* The method for grpc_server_new; valid as long as the service. */
struct grpc_method pick_service_method(struct pick_service *service);
/* A pool or the list of pools was updated: every worker refreshes its readers soon, so that the old
 * snapshot is freed. Thread: any. */
void pick_service_refresh(struct pick_service *service);

/* Server reflection (grpcurl and similar): the methods for grpc_server_new. */
enum { PICK_REFLECTION_METHODS = 2 };
void pick_reflection_methods(struct grpc_method methods[PICK_REFLECTION_METHODS]);

#endif
