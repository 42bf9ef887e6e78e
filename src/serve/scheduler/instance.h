/* The instances of a model version and their threads. An instance executes one batch at a time and
 * is claimed for it, by a thread of the version or by a worker. There are as many threads as
 * instances, but a thread takes any idle instance of its host policy; with sequence batching each
 * thread has its own. */
#ifndef SLUICE_SERVE_SCHEDULER_INSTANCE_H
#define SLUICE_SERVE_SCHEDULER_INSTANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "core/base/status.h"
#include "serve/scheduler/call_run.h"

enum { INSTANCE_REQUESTS_MAX = 1024 /* per execution: the list of calls is on the stack */ };

struct host_policy; /* core/os/host_policy.h */

struct instance {
    struct model_version *version;
    sluice_instance *handle; /* the backend's */
    uint32_t index;
    const struct host_policy *policy; /* where its thread runs; NULL: anywhere */
    atomic_bool busy;
    _Atomic uintptr_t executor; /* decoupled models: the lock_thread_marker of the thread that
                                   executes; 0: none */
    uv_thread_t thread;
    bool has_thread;
};

/* Opens version->n_instances instances of version->model; on failure closes those already open.
 * Returns: the backend's error. */
enum status instances_open(struct model_version *version, struct error *err) SLUICE_MUST_USE;
/* Starts the threads. */
enum status instances_start(struct model_version *version, struct error *err) SLUICE_MUST_USE;
/* Stops and joins the threads. No call is queued or running. */
void instances_stop(struct model_version *version);
void instances_close(struct model_version *version);

/* Returns: an idle instance of the host policy (NULL: without one), which the caller owns until
 * instance_release; NULL: all are busy. Thread: any; takes no lock. */
struct instance *instance_claim(struct model_version *version, const struct host_policy *policy);
void instance_release(struct instance *instance);
/* Runs calls in CALL_RUNNING that started at `started_ns`. Answered calls may be freed on return
 * (see call_complete). */
void instance_execute(struct instance *instance, struct call *const *calls, size_t n,
                      uint64_t started_ns);
/* Records the execution's statistics. The caller still owns the instance. */
void instance_executed(struct instance *instance, uint64_t ended_ns);

#endif
