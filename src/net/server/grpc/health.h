/* grpc.health.v1.Health for whoever has a gRPC server: the messages, and those who watch. What the
 * state of a name is, a function says; who watches is told by a message to each worker when
 * something may have changed.
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
    /* The state of what has this name, now; on any worker. */
    enum grpc_health_state (*state_of)(void *context, struct str service);
    void *context;
    const char *names;             /* which there are, for messages: "a model; empty: the server" */
    struct worker *const *workers; /* those of the server */
    size_t n_workers;
};

struct grpc_health;

/* Returns: ST_NO_MEMORY. Owns: *out until grpc_health_free, which is after the server's end. */
enum status grpc_health_new(const struct grpc_health_options *options, struct grpc_health **out,
                            struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. */
void grpc_health_free(struct grpc_health *health);
/* A state may have changed: tells those who watch. Thread: any. */
void grpc_health_notify(struct grpc_health *health);
/* The server ends: tells those who watch, and ends their calls (UNAVAILABLE), also those of whoever
 * still comes to watch. A drain would wait for them in vain. Thread: any. */
void grpc_health_shutdown(struct grpc_health *health);

/* The rows for grpc_server_new: Check, and Watch. They live as long as `health`. */
enum { GRPC_HEALTH_METHODS = 2 };
void grpc_health_methods(struct grpc_health *health,
                         struct grpc_method methods[GRPC_HEALTH_METHODS]);

/* For who has rows of its own. */
#define GRPC_HEALTH_CHECK "/grpc.health.v1.Health/Check"
#define GRPC_HEALTH_WATCH "/grpc.health.v1.Health/Watch"
/* The answer to a message of Check, appended. Returns: ST_NOT_FOUND, ST_BAD_REQUEST. */
enum status grpc_health_check(const struct grpc_health *health, struct str message, struct buf *out,
                              struct error *err) __attribute__((warn_unused_result));
/* A step of Watch, which streams; call->user is this one's. */
void grpc_health_watch(struct grpc_health *health, struct grpc_call *call, enum grpc_event event);

#endif
