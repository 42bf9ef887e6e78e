/* Opens, claims and runs instances, and the loop of their threads. No lock is held while a backend
 * runs. What runs together is decided in scheduler.c. */
#include "serve/scheduler/instance.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

#include "core/event/clock.h"
#include "core/event/thread.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/batch.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/joint/joint_request.h"
#include "serve/scheduler/padding_request.h"
#include "serve/scheduler/placement.h"
#include "serve/scheduler/version.h"

enum { THREAD_NAME_BYTES = 16 };

/* ---- opening and closing --------------------------------------------------------------------- */

static void close_first_instances(struct model_version *version, size_t n) {
    while (n > 0) {
        n--;
        version->backend->instance_close(version->instances[n].handle);
        version->instances[n].handle = NULL;
    }
}

enum status instances_open(struct model_version *version, struct error *err) {
    for (uint32_t i = 0; i < version->n_instances; i++) {
        struct instance *instance = &version->instances[i];
        sluice_error reason = {{0}};
        sluice_status status;
        *instance = (struct instance){
            .version = version, .index = i, .policy = placement_policy_of(version, i)};
        if (placement_enter(version, instance->policy, err) != ST_OK) {
            close_first_instances(version, i);
            return error_prefix(err, "instance %u", i);
        }
        status = version->backend->instance_open(version->model, i, &instance->handle, &reason);
        if (status != SLUICE_OK) {
            close_first_instances(version, i);
            backend_error(err, version->backend, status, reason.text);
            return error_prefix(err, "instance %u", i);
        }
    }
    return ST_OK;
}

void instances_close(struct model_version *version) {
    close_first_instances(version, version->n_instances);
}

/* ---- claiming -------------------------------------------------------------------------------- */

struct instance *instance_claim(struct model_version *version, const struct host_policy *policy) {
    for (size_t i = 0; i < version->n_instances; i++) {
        struct instance *instance = &version->instances[i];
        bool idle = false;
        if (instance->policy != policy) {
            continue;
        }
        if (atomic_compare_exchange_strong_explicit(&instance->busy, &idle, true,
                                                    memory_order_seq_cst, memory_order_seq_cst)) {
            return instance;
        }
    }
    return NULL;
}

void instance_release(struct instance *instance) {
    struct model_version *version = instance->version;
    /* A thread that found calls but no idle instance sleeps until a thread that releases one wakes
     * it. No wakeup is lost: both sides are sequentially consistent, so either the sleeper's claim
     * sees this store, or this thread sees the sleeper's calls; and the wakeup needs the lock that
     * the sleeper held from its claim until it slept. */
    atomic_store_explicit(&instance->busy, false, memory_order_seq_cst);
    if (!scheduler_is_empty(&version->scheduler)) {
        scheduler_wake(&version->scheduler);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

/* Notes which thread and which instance the calls have, for those that wait for them. */
static void execute_decoupled(struct instance *instance, struct call *const *calls,
                              const sluice_request *const *requests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        response_stream_run(calls[i]->run->stream, instance->index);
    }
    atomic_store_explicit(&instance->executor, (uintptr_t)&lock_thread_marker,
                          memory_order_relaxed);
    instance->version->backend->execute(instance->handle, requests, n);
    atomic_store_explicit(&instance->executor, 0, memory_order_relaxed);
}

void instance_execute(struct instance *instance, struct call *const *calls, size_t n,
                      uint64_t started_ns) {
    struct model_version *version = instance->version;
    const sluice_request *requests[INSTANCE_REQUESTS_MAX];
    assert(n >= 1 && n <= INSTANCE_REQUESTS_MAX);
    lock_assert_not_held(&version->scheduler.lock);
    for (size_t i = 0; i < n; i++) {
        calls[i]->started_ns = calls[i]->run->n_iterations > 0 ? calls[i]->started_ns : started_ns;
        calls[i]->run->instance = instance->index;
        requests[i] = &calls[i]->run->backend_request;
    }
    statistics_execution_begin(&version->statistics, instance->index, calls, n, started_ns);
    if (version->plan.layout) {
        joint_execute(instance, calls, n);
    } else if (version->plan.spec.decoupled) {
        execute_decoupled(instance, calls, requests, n);
    } else {
        version->backend->execute(instance->handle, requests, n);
    }
}

void instance_executed(struct instance *instance, uint64_t ended_ns) {
    statistics_execution_end(&instance->version->statistics, instance->index, ended_ns);
}

/* Waits until a batch is due and an instance of the policy is idle. `held` is the instance that the
 * caller used last and keeps while calls wait. With policies no worker claims instances, so that
 * each thread that waits finds one: there are as many as threads. Returns: NULL on shutdown. */
static struct instance *wait_for_batch(struct model_version *version,
                                       const struct host_policy *policy, struct instance *held,
                                       struct call **batch, size_t *n) {
    struct scheduler *scheduler = &version->scheduler;
    lock_acquire(&scheduler->lock);
    for (;;) {
        uint64_t until_ns, now_ns = clock_now_ns();
        bool due = scheduler_is_due(scheduler, INSTANCE_REQUESTS_MAX, now_ns, &until_ns);
        if (due && !held) {
            held = instance_claim(version, policy);
        }
        if (due && held) {
            *n = scheduler_take(scheduler, batch, INSTANCE_REQUESTS_MAX, now_ns);
            break;
        }
        if (held) {
            /* No wakeup is needed: nothing is due, and scheduler_notify wakes a thread. */
            atomic_store_explicit(&held->busy, false, memory_order_seq_cst);
            held = NULL;
        }
        if (scheduler->stopping) {
            break;
        }
        if (until_ns == UINT64_MAX) {
            lock_cond_wait(&scheduler->lock, &scheduler->work);
        } else {
            lock_cond_wait_until_ns(&scheduler->lock, &scheduler->work, until_ns);
        }
    }
    lock_release(&scheduler->lock);
    return held;
}

/* The same for an instance with sequences. Returns: false on shutdown. */
static bool wait_for_sequence_batch(struct instance *instance, struct call **batch, size_t *n) {
    struct scheduler *scheduler = &instance->version->scheduler;
    uint64_t until_ns, now_ns = clock_now_ns();
    lock_acquire(&scheduler->lock);
    scheduler_executed(scheduler, instance->index, now_ns);
    bool due = scheduler_is_due_for_instance(scheduler, instance->index, now_ns, &until_ns);
    atomic_store_explicit(&instance->busy, due, memory_order_seq_cst);
    while (!due && !scheduler->stopping) {
        if (until_ns == UINT64_MAX) {
            lock_cond_wait(&scheduler->lock, &scheduler->work);
        } else {
            lock_cond_wait_until_ns(&scheduler->lock, &scheduler->work, until_ns);
        }
        now_ns = clock_now_ns();
        due = scheduler_is_due_for_instance(scheduler, instance->index, now_ns, &until_ns);
    }
    *n = due ? scheduler_take_for_instance(scheduler, instance->index, batch, now_ns) : 0;
    atomic_store_explicit(&instance->busy, due, memory_order_seq_cst);
    lock_release(&scheduler->lock);
    return due;
}

/* Completes calls with an error before they reach the backend. */
static void fail_batch(struct call *const *batch, size_t n, const struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (batch[i]) {
            batch[i]->response.error = *err;
            call_complete(batch[i]);
        }
    }
}

static void run_sequences(struct instance *instance, struct call **batch) {
    struct error err;
    size_t n = 0;
    while (wait_for_sequence_batch(instance, batch, &n)) {
        if (padding_requests_add(instance->version, batch, n, &err) != ST_OK) {
            fail_batch(batch, n, &err);
            continue;
        }
        instance_execute(instance, batch, n, clock_now_ns());
        instance_executed(instance, clock_now_ns());
    }
}

static void thread_main(void *arg) {
    struct instance *instance = arg;
    struct model_version *version = instance->version;
    const struct host_policy *policy = instance->policy;
    struct call *batch[INSTANCE_REQUESTS_MAX];
    char name[THREAD_NAME_BYTES];
    snprintf(name, sizeof(name), "%.10s/%u", version->plan.spec.name.ptr, instance->index);
    pthread_setname_np(pthread_self(), name);
    size_t n = 0;
    if (version->scheduler.sequences) {
        run_sequences(instance, batch);
        return;
    }
    /* Without sequences a thread may run any instance; this one only named it. */
    instance = wait_for_batch(version, policy, NULL, batch, &n);
    while (instance) {
        /* The calls may be freed by the execution. */
        struct exec_time_stats *times =
            version->run_on == RUN_AUTO
                ? shape_times_get(&version->shape_times, batch[0]->run->shapes)
                : NULL;
        uint64_t rows = times ? batch_rows(batch, n) : 0;
        struct exec_thread_use use = exec_time_stats_begin(times);
        uint64_t started_ns = clock_now_ns();
        instance_execute(instance, batch, n, started_ns);
        uint64_t ended_ns = clock_now_ns();
        instance_executed(instance, ended_ns);
        if (times) {
            exec_time_stats_add(times, ended_ns - started_ns, rows, &use);
        }
        instance = wait_for_batch(version, policy, instance, batch, &n);
    }
}

enum status instances_start(struct model_version *version, struct error *err) {
    for (size_t i = 0; i < version->n_instances; i++) {
        struct instance *instance = &version->instances[i];
        if (placement_enter(version, instance->policy, err) != ST_OK) {
            instances_stop(version);
            return err->status;
        }
        int rc = uv_thread_create(&instance->thread, thread_main, instance);
        if (rc != 0) {
            instances_stop(version);
            return error_set(err, ST_NOT_READY, "no thread for instance %zu: %s", i,
                             thread_start_error(rc));
        }
        instance->has_thread = true;
    }
    return ST_OK;
}

void instances_stop(struct model_version *version) {
    scheduler_stop(&version->scheduler);
    for (size_t i = 0; i < version->n_instances; i++) {
        struct instance *instance = &version->instances[i];
        if (instance->has_thread) {
            uv_thread_join(&instance->thread);
            instance->has_thread = false;
        }
    }
}
