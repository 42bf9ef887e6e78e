/* Calls of models by models: the host's side of sluice_calls (sluice/backend.h). A call is an inner
 * inference (serve/inference/inner.h) on the worker of the request for which the model is called,
 * or without one on each worker in turn, and then in a memory account of that worker's own.
 *
 *     model_calls_init ─→ model_calls_open ─→ calls ─→ model_calls_drain ─→ model_calls_stop
 *     ─→ model_calls_close
 *
 * What backends get (model_calls_table) is valid from model_calls_init on; until model_calls_open
 * and from model_calls_stop on calls are refused. */
#ifndef SLUICE_SERVE_INFERENCE_MODEL_CALL_H
#define SLUICE_SERVE_INFERENCE_MODEL_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport/budget.h"
#include "serve/inference/inner.h"
#include "sluice/backend.h"

struct model_calls_worker;

struct model_calls {
    sluice_calls table; /* for backends */
    struct inner_services services;
    struct net_budget *budget; /* NULL: they are not open */
    struct net_budget_user budget_user;
    struct model_calls_worker *workers;
    size_t n_workers;
    _Atomic size_t next; /* of the worker for what has no parent */
    pthread_mutex_t lock;
    /* with the lock */
    bool is_open;
    bool is_draining;           /* calls without a parent are refused */
    size_t n_live;              /* calls and changes that the host or a backend still uses */
    struct worker *stop_worker; /* NULL: model_calls_stop was not called */
    struct worker_msg stop_msg;
    void (*stopped)(void *user);
    void *user;
};

/* Before the first model is opened; then the address stays the same until model_calls_fini. */
void model_calls_init(struct model_calls *self);
struct model_calls_options {
    struct inner_services services;
    struct net_budget *budget;     /* of all clients; outlives the calls */
    struct worker *const *workers; /* started */
    size_t n_workers;
};
/* Accepts calls from now on. Returns: ST_NO_MEMORY. Thread: not one of the workers. */
enum status model_calls_open(struct model_calls *self, const struct model_calls_options *options,
                             struct error *err) SLUICE_MUST_USE;
/* Calls without a parent are refused from now on: a shutdown waits for those that there are.
 * Thread: any. */
void model_calls_drain(struct model_calls *self);
/* Returns: calls and changes that have not ended. Thread: any. */
size_t model_calls_count(struct model_calls *self);
/* No call has a parent any more. Refuses all from now on; `stopped` runs on `worker` when none is
 * left. Once. */
void model_calls_stop(struct model_calls *self, struct worker *worker, void (*stopped)(void *user),
                      void *user);
/* After `stopped`, while the workers still run. Idempotent; without model_calls_open no effect.
 * Thread: not one of the workers. */
void model_calls_close(struct model_calls *self);
/* After all models are closed. */
void model_calls_fini(struct model_calls *self);

#endif
