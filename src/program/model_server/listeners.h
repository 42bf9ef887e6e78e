/* All servers and listeners of the running process, and their common shutdown. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_LISTENERS_H
#define SLUICE_PROGRAM_MODEL_SERVER_LISTENERS_H

#include "net/server/http/server.h"
#include "program/model_server/grpc.h"
#include "program/model_server/mip.h"
#include "program/model_server/security.h"
#include "program/model_server/settings.h"
#include "program/process/process.h"
#include "serve/admin/routes.h"
#include "serve/frontend/http/routes.h"
#include "serve/frontend/shm_registry.h"
#include "telemetry/admin/listener.h"

/* The metrics, and the admin listener of --metrics. */
struct serve_admin {
    struct worker *main;
    struct admin_metrics metrics;
    bool has_metrics;
    struct admin_api api;
    struct admin_listener listener;
};

/* A bound address, one for each setting: HTTP first, then gRPC, MIP and metrics. */
struct serve_bound_address {
    struct address address;
    const char *url; /* as in the ready file; NULL: not yet bound */
};

struct serve_listeners {
    const struct serve_settings *settings;
    struct arena *arena;
    struct net_budget budget;
    struct net_budget_user cache; /* evicts from the response cache when requests need memory */
    struct repository *repository;
    struct serve_security security;
    struct serve_admin admin;
    struct tracer tracer;
    struct inference_services services; /* of all front ends */
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

/* Creates the servers and listens on every address; `admin` is a started worker for the admin
 * listener. After a failure the servers that exist are stopped and freed as usual. Thread: main. */
enum status serve_listeners_open(struct serve_listeners *self,
                                 const struct serve_settings *settings,
                                 struct repository *repository,
                                 const struct process_threads *threads,
                                 struct error *err) SLUICE_MUST_USE;
/* Models may have changed: notifies the Health/Watch streams. Thread: any. */
void serve_listeners_on_models_changed(struct serve_listeners *self);
/* The models of the start are known: finds those that listeners name. Before it no model is loaded,
 * and MIP packets are answered with NOT_READY. Returns: ST_BAD_CONFIG. Thread: any, once. */
enum status serve_listeners_on_models_found(struct serve_listeners *self,
                                            struct error *err) SLUICE_MUST_USE;
/* Called when the models have loaded. */
void serve_listeners_on_models_loaded(struct serve_listeners *self);
/* Writes the ready file, if it is configured. */
void serve_listeners_write_ready_file(const struct serve_listeners *self, struct ready_file *file);
/* Logs the state of every connection, request and instance. */
void serve_listeners_log_state(struct serve_listeners *self);
/* Tells clients to use another server; requests are still served. */
void serve_listeners_drain(struct serve_listeners *self);
/* The number of requests in flight. */
uint64_t serve_listeners_in_flight(const struct serve_listeners *self);
/* Closes all connections; `stopped` runs on the main thread when none is left. */
void serve_listeners_stop(struct serve_listeners *self, void (*stopped)(void *user), void *user);
/* Removes the files of Unix sockets, for a process that exits without serve_listeners_stop. */
void serve_listeners_unlink(const struct serve_listeners *self);
/* Stops the threads of the servers. Call it after `stopped`, while the workers' loops still process
 * messages. */
void serve_listeners_stop_threads(struct serve_listeners *self);
/* Call it after the workers have ended. */
void serve_listeners_free(struct serve_listeners *self);

#endif
