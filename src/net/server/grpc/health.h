/* grpc.health.v1.Health for a gRPC server: the methods Check and Watch. A callback returns the
 * state of a name; grpc_health_notify makes each worker send changed states to its watchers.
 *
 * Thread: grpc_health_new and _free on the main thread; methods on any worker. */
#ifndef SLUICE_NET_SERVER_GRPC_HEALTH_H
#define SLUICE_NET_SERVER_GRPC_HEALTH_H

#include "core/base/buf.h"
#include "net/server/grpc/server.h"

/* HealthCheckResponse.ServingStatus */
enum grpc_health_state {
    GRPC_HEALTH_UNKNOWN,
    GRPC_HEALTH_SERVING,
    GRPC_HEALTH_NOT_SERVING,
    GRPC_HEALTH_SERVICE_UNKNOWN,
};

struct grpc_health_options {
    /* Returns the current state of a service. Called on any worker. */
    enum grpc_health_state (*state_of)(void *context, struct str service);
    void *context;
    /* What the names stand for, for error messages: "a model; empty: the server". */
    const char *names;
    struct worker *const *workers; /* the server's */
    size_t n_workers;
};

struct grpc_health;

/* Returns: ST_NO_MEMORY. Owns: *out until grpc_health_free, after the server has stopped. */
enum status grpc_health_new(const struct grpc_health_options *options, struct grpc_health **out,
                            struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void grpc_health_free(struct grpc_health *health);
/* A state may have changed: updates the watchers. Thread: any. */
void grpc_health_notify(struct grpc_health *health);
/* The server stops: updates the watchers and ends their calls (UNAVAILABLE), also of later ones; a
 * drain would wait for them forever. Thread: any. */
void grpc_health_shutdown(struct grpc_health *health);

/* Rows for grpc_server_new: Check and Watch. Valid as long as `health`. */
enum { GRPC_HEALTH_METHODS = 2 };
void grpc_health_methods(struct grpc_health *health,
                         struct grpc_method methods[GRPC_HEALTH_METHODS]);

/* For servers with rows of their own. */
#define GRPC_HEALTH_CHECK "/grpc.health.v1.Health/Check"
#define GRPC_HEALTH_WATCH "/grpc.health.v1.Health/Watch"
/* Appends the response to a Check message. Returns: ST_NOT_FOUND, ST_BAD_REQUEST. */
enum status grpc_health_check(const struct grpc_health *health, struct str message, struct buf *out,
                              struct error *err) SLUICE_MUST_USE;
/* Event callback of Watch, a streaming method; uses call->user. */
void grpc_health_watch(struct grpc_health *health, struct grpc_call *call, enum grpc_event event);

#endif
