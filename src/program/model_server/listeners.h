/* Everything of the running server that clients can reach: one server for each protocol, all of
 * their addresses, and what ends them together. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_LISTENERS_H
#define SLUICE_PROGRAM_MODEL_SERVER_LISTENERS_H

#include "net/server/http/server.h"
#include "program/model_server/grpc.h"
#include "program/model_server/mip.h"
#include "program/model_server/security.h"
#include "program/model_server/settings.h"
#include "program/process/process.h"
#include "serve/admin/api.h"
#include "serve/frontend/http/api.h"
#include "serve/frontend/shm_registry.h"
#include "telemetry/admin/listener.h"

/* What operators look at: the numbers behind /metrics, and the listener of --metrics. */
struct serve_admin {
    struct admin_metrics metrics;
    bool has_metrics;
    struct admin_api api;
    struct admin_listener listener;
};

/* Where it is listened on; one for each setting: HTTP's first, then gRPC's, MIP's, and metrics'. */
struct serve_bound_address {
    struct address address;
    const char *url; /* as in the ready file; NULL: not yet bound */
};

struct serve_listeners {
    const struct serve_settings *settings;
    struct arena *arena;
    struct net_budget budget;
    struct serve_security security;
    struct serve_admin admin;
    struct shm_registry *shared; /* memory of clients */
    struct tracer tracer;
    struct http_api http_api;
    struct header_forward *http_forward; /* NULL: no pattern */
    struct http_server *http;
    struct serve_grpc grpc;
    struct serve_mip mip;
    struct serve_bound_address *addresses;
    size_t n_addresses;
    size_t n_stopping; /* servers that have not stopped yet */
    void (*stopped)(void *user);
    void *user;
};

/* Makes the servers and listens on every address. After a failure what was made is still there: it
 * is stopped and freed like the rest. Thread: main. */
enum status serve_listeners_open(struct serve_listeners *self,
                                 const struct serve_settings *settings,
                                 struct repository *repository,
                                 const struct process_threads *threads, struct error *err)
    __attribute__((warn_unused_result));
/* What is served may have changed: tells those who watch. Thread: any. */
void serve_listeners_on_models_changed(struct serve_listeners *self);
/* The models have loaded. */
void serve_listeners_on_models_loaded(struct serve_listeners *self);
/* Writes the ready file, when there is to be one. */
void serve_listeners_write_ready_file(const struct serve_listeners *self);
/* Writes into the log what every connection, request and instance is doing. */
void serve_listeners_log_state(struct serve_listeners *self);
/* Clients are told to go elsewhere; what they ask meanwhile is answered. */
void serve_listeners_drain(struct serve_listeners *self);
/* Requests begun and not ended. */
uint64_t serve_listeners_in_flight(const struct serve_listeners *self);
/* Closes all connections; `stopped` runs on the main thread when none is left. */
void serve_listeners_stop(struct serve_listeners *self, void (*stopped)(void *user), void *user);
/* Removes the files of Unix sockets: for a process that ends without the rest. */
void serve_listeners_unlink(const struct serve_listeners *self);
/* After they stopped, while the workers' loops still take messages. */
void serve_listeners_stop_threads(struct serve_listeners *self);
/* After the workers have ended. */
void serve_listeners_free(struct serve_listeners *self);

#endif
