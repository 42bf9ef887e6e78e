/* The instances of a model version, and the threads that run them. An instance executes one batch
 * at a time; who executes, a thread of the version or a worker, claims one first. Threads and
 * instances are as many, but a thread takes whichever instance is free; where there are sequences
 * each thread has its own. */
#ifndef SLUICE_SERVE_SCHEDULER_INSTANCE_H
#define SLUICE_SERVE_SCHEDULER_INSTANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "core/base/status.h"
#include "serve/scheduler/call.h"

enum { INSTANCE_REQUESTS_MAX = 1024 /* in one execution: their list is on a stack */ };

struct instance {
    struct model_version *version;
    sluice_instance *handle; /* the backend's */
    uint32_t index;
    atomic_bool busy;
    uv_thread_t thread;
    bool has_thread;
};

/* Opens version->n_instances instances of version->model. On failure those opened are closed again.
 * Returns: the backend's reason. */
enum status instances_open(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));
/* Starts the threads. */
enum status instances_start(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));
/* Ends the threads and waits for them. Nothing is queued or running. */
void instances_stop(struct model_version *version);
void instances_close(struct model_version *version);

/* Returns: an instance that nobody uses, now the caller's until instance_release; NULL: all are
 * busy.
 * Thread: any; takes no lock. */
struct instance *instance_claim(struct model_version *version);
void instance_release(struct instance *instance);
/* Runs the calls, which are in CALL_RUNNING, and began at `started_ns`. Calls that were answered
 * may be gone when it returns (see call_complete). */
void instance_execute(struct instance *instance, struct call *const *calls, size_t n,
                      uint64_t started_ns);
/* That has returned: counts it. The instance is still the caller's. */
void instance_executed(struct instance *instance, uint64_t ended_ns);

#endif
