/* A served model version, internal to serve/scheduler and serve/repository; front ends use
 * model_version.h. */
#ifndef SLUICE_SERVE_SCHEDULER_VERSION_H
#define SLUICE_SERVE_SCHEDULER_VERSION_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/event/loop_iteration.h"
#include "serve/config/config.h"
#include "serve/config/resolve_config.h"
#include "serve/scheduler/cache/response_cache.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/hosts.h"
#include "serve/scheduler/instance.h"
#include "serve/scheduler/model_version.h"
#include "serve/scheduler/per_worker.h"
#include "serve/scheduler/placement.h"
#include "serve/scheduler/scheduler.h"
#include "serve/scheduler/shape_times.h"
#include "serve/scheduler/shared_budget.h"
#include "serve/scheduler/statistics/count.h"
#include "sluice/backend.h"

enum {
    CACHE_LINE_BYTES = 64,
    VERSION_SPIN_CPUS = 4, /* minimum number of threads per execution for spinning */
};

struct ensemble_ops; /* serve/scheduler/ensemble_call.h */

/* The versions of a model that are served, ascending. */
struct version_numbers {
    size_t n;
    const uint64_t *numbers;
};

struct model_version {
    /* constant once open */
    struct arena *arena;        /* contains everything here, this struct included */
    struct model_config config; /* own copy, completed */
    struct model_plan plan;
    const sluice_backend *backend;
    sluice_model *model;
    const struct ensemble_ops *ensemble_ops; /* NULL: no ensemble. With it there are no instances */
    void *ensemble;                          /* of ensemble_ops */
    struct instance *instances;
    size_t n_instances;
    struct version_placement placement;
    uint32_t n_threads; /* per execution */
    bool may_spin;
    uint64_t work_name[LOOP_WORK_WORDS]; /* the name, for loop_work_set */
    /* "model NAME", for loop_iteration_note: a version is freed after the iterations that ran it */
    char work_text[LOOP_WORK_BYTES + 8];
    enum model_run_on run_on;        /* RUN_AUTO: decided by shape_times */
    uint64_t max_output_size;        /* 0: no limit */
    uint64_t slow_reader_timeout_ns; /* enforced by partial_response_send; 0: none */
    struct str path;                 /* the model's file or directory */
    struct str directory;            /* directory of the files that the configuration names */
    const void *user_data[MODEL_VERSION_SLOTS]; /* of the front ends; set before the version is
                                            published */
    const struct shared_budget *budget;         /* of states, and of joint requests */
    struct arena_budget joint_budget;           /* the same, for their arenas */
    struct state_value **first_states;          /* one per state; NULL: none */

    /* modified while serving: separate cache lines from the constant part */
    alignas(CACHE_LINE_BYTES) struct scheduler scheduler;
    /* Set before the version is published, and replaced when others are added or removed. */
    _Atomic(const struct version_numbers *) siblings;
    struct shape_times shape_times;        /* RUN_AUTO */
    struct per_worker_table inline_queues; /* inline queues (inline_queue.c) */
    struct failing_hosts failing_hosts;
    struct slow_hosts slow_hosts;
    struct lock streams_lock;
    struct response_stream_list streams; /* of the calls in flight of a decoupled model */
    _Atomic uint64_t response_bytes;     /* model_version_response_bytes */
    atomic_flag shape_reported;          /* outputs unlike the specification are logged once */
    struct statistics statistics;
    struct cache_scope cache; /* of the response cache */
    alignas(CACHE_LINE_BYTES) atomic_size_t refs;
    atomic_size_t n_in_flight; /* calls accepted and not yet answered */
    atomic_bool stopping;
};

/* Options of version_open. */
struct version_options {
    const sluice_backend *backend;
    const struct model_config *config; /* as read; strings and arrays must outlive the version */
    struct str name;
    uint64_t version;
    struct str path;      /* "…/1/model.onnx" */
    struct str directory; /* the model's directory; "" for a single file */
    uint64_t default_max_batch_size;
    uint64_t max_queue_size;
    uint64_t max_output_size;        /* 0: no limit */
    uint64_t slow_reader_timeout_ns; /* 0: none */
    const char *const *op_libraries; /* sluice_model_args.op_libraries */
    size_t n_op_libraries;
    bool from_request;                /* sluice_model_args.from_request */
    const struct sluice_calls *calls; /* sluice_model_args.calls; may be NULL */
    bool is_complete;                 /* sluice_model_args.is_complete */
    /* repository_options.print_config; NULL: backends are not told the configuration */
    enum status (*print_config)(struct arena *arena, const struct model_config *config,
                                struct str *out, struct error *err);
    unsigned usable_cpus;
    const struct host_policies *host_policies; /* outlive the version; NULL: none */
    const struct latency_options *latencies;   /* outlives the version; NULL: none */
    bool avoid_spinning;                       /* the CPU quota is below the affinity */
    struct response_cache *cache;              /* for models that enable it; NULL: none */
    const struct shared_budget *state_budget;  /* outlives all answers; NULL: no limit */
    const struct ensemble_ops *ensemble_ops;   /* for ensembles; NULL: none can be opened */
    void *ensemble_user;
    /* repository_options.on_version_opened; may be NULL */
    enum status (*on_version_opened)(void *user, struct model_version *version, struct error *err);
    void *on_version_opened_user;
};

/* Opens the model in its backend, completes the configuration, opens the instances and starts their
 * threads.
 * Returns: the backend's error, ST_BAD_MODEL, ST_NO_MEMORY. Owns: *out, with one reference, until
 * version_stop and version_close. Thread: one at a time per model; may block. */
enum status version_open(const struct version_options *options, struct model_version **out,
                         struct error *err) SLUICE_MUST_USE;
/* Its batches no longer wait for more calls: it is replaced or unloaded, or the server drains.
 * Thread: any. */
void version_end_delays(struct model_version *version);
/* Refuses new calls. Thread: any. */
void version_reject_calls(struct model_version *version);
/* Refuses new calls, waits until accepted calls are answered, joins the threads. */
void version_stop(struct model_version *version);
/* Frees the version, after version_stop and after the last reference and answer were released. A
 * version that is still held is leaked and logged. */
void version_close(struct model_version *version);

/* version_enter counts a call in flight; returns false (with `err` filled) when the version is
 * stopping. version_leave ends the call. */
bool version_enter(struct model_version *version, struct error *err);
void version_leave(struct model_version *version);

#endif
