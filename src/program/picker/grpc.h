/* The gRPC servers for proxies: ext-proc with health, and health at an address of its own. */
#ifndef SLUICE_PROGRAM_PICKER_GRPC_H
#define SLUICE_PROGRAM_PICKER_GRPC_H

#include <stdatomic.h>

#include "net/server/grpc/health.h"
#include "net/transport/budget.h"
#include "net/transport/tls/server.h"
#include "pick/ext_proc/service.h"
#include "program/picker/settings.h"
#include "program/process/process.h"

/* Health, then ext-proc, then reflection. */
enum { PICK_GRPC_METHODS = GRPC_HEALTH_METHODS + 1 + PICK_REFLECTION_METHODS };

struct pick_grpc {
    struct pool_set *pools;
    struct pick_workers *workers; /* of the service */
    struct pick_service *service;
    struct grpc_health *health;
    struct grpc_health *own_health;  /* of health_server */
    struct otel_settings traces;     /* with --tracing */
    struct span_writer *span_writer; /* NULL: none, or nothing is exported */
    struct arena *arena;             /* of `traces`; NULL: no --tracing */
    const struct loop_health *loops;
    const atomic_bool *ready; /* owned by the caller: there is a pool to pick from */
    atomic_bool draining;
    struct grpc_method methods[PICK_GRPC_METHODS];
    struct grpc_server *server;
    struct grpc_method own_methods[GRPC_HEALTH_METHODS];
    /* NULL: no --health. It has connections and memory of its own, and runs on the main thread, so
     * that proxies cannot keep probes out. */
    struct grpc_server *health_server;
    struct net_budget health_budget;
};

/* With --tracing: reads where traces go, and makes the writer, if they are exported. Texts are in
 * `arena`. Returns: an error with the flag. Owns: *out until span_writer_free. */
enum status pick_traces_open(const struct pick_settings *settings, struct arena *arena,
                             struct otel_settings *traces, struct span_writer **out,
                             struct error *err) SLUICE_MUST_USE;
/* Of the settings; `traces` are read with --tracing only, and stay as long as the workers. */
struct pick_workers_options pick_workers_options(const struct pick_settings *settings,
                                                 struct pool_set *pools,
                                                 const struct otel_settings *traces,
                                                 struct span_writer *span_writer);
/* Of a connection, and of messages with what ext-proc adds to a body. */
struct net_limits pick_net_limits(const struct pick_settings *settings);
/* Makes the TLS context from the settings; `*out` is NULL without TLS. Returns: why the files can't
 * be used, with the flag. Owns: *out until tls_server_free. */
enum status pick_tls_open(const struct pick_settings *settings, struct tls_server **out,
                          struct error *err) SLUICE_MUST_USE;
/* Makes the servers and listens on each address of --grpc, with TLS where the scheme says so, then
 * of --health. `self` is zeroed but for `ready`. `bound` receives one address for each, in this
 * order. Returns: an error with the flag. Owns: pick_grpc_free, also after a failure. */
enum status pick_grpc_open(struct pick_grpc *self, const struct pick_settings *settings,
                           struct pool_set *pools, const struct process_threads *threads,
                           struct net_budget *budget, const struct tls_server *tls,
                           struct listen_address *bound, struct error *err) SLUICE_MUST_USE;
/* To be called when pools have changed. */
void pick_grpc_refresh_pools(struct pick_grpc *self);
/* To be called when the health of the event loops has changed. Thread: any. */
void pick_grpc_refresh_health(struct pick_grpc *self);
/* Health becomes NOT_SERVING and clients get GOAWAY; open streams continue. */
void pick_grpc_drain(struct pick_grpc *self);
/* Open streams. */
uint64_t pick_grpc_in_flight(const struct pick_grpc *self);
/* Closes all connections. Calls `stopped` once for each server. Returns: the number of servers. */
size_t pick_grpc_stop(struct pick_grpc *self, void (*stopped)(void *user), void *user);
/* After the workers have ended. */
void pick_grpc_free(struct pick_grpc *self);

#endif
