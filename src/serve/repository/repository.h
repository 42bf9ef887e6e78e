/* The models being served: found in directories or given as files, loaded in the background, looked
 * up by name and version on every request without a lock. A model that fails to load does not
 * affect the others, and reports its reason.
 *
 * While serving, models can be loaded again, added and removed (by repository_change, or by polling
 * their files). The new model is opened and warmed up first and then replaces the old one in one
 * step; requests that found the old one finish on it, and it is closed when the last of them drops
 * its reference. A failed load leaves the served model as it is.
 *
 * Thread: repository_new, _load_start, _stop and _free on the main thread. Lookups and visits on
 * the workers, the main and the admin worker of the options, or, without those, on any thread
 * (repository_find_locked always). Everything else on any thread. */
#ifndef SLUICE_SERVE_REPOSITORY_REPOSITORY_H
#define SLUICE_SERVE_REPOSITORY_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "core/tensor/tensor.h"
#include "serve/scheduler/model_version.h"
#include "sluice/backend.h"

struct ensemble_ops;  /* serve/scheduler/ensemble_call.h */
struct host_policies; /* core/os/host_policy.h */
struct shared_budget;
struct repository;

/* Parameters of a model from the server's own settings; they override its config.pbtxt. */
struct repository_param {
    struct str name;
    struct str value;
};
struct repository_params {
    const struct repository_param *items;
    size_t n;
};

/* A parameter of all models of a backend, unless they have their own. "default-max-batch-size"
 * stands for the setting of that name. */
struct repository_backend_param {
    struct str backend;
    struct repository_param param;
};

/* When models are loaded. */
enum repository_control {
    REPOSITORY_FIXED,    /* all at start, and never again */
    REPOSITORY_POLLED,   /* all at start, and again when polling finds changed files */
    REPOSITORY_EXPLICIT, /* `load` at start, the others on request */
};

enum { REPOSITORY_MAX_LOADS = 64 /* concurrently */ };

/* A member that has the name of a setting (program/model_server/settings.def) is its value. */
struct repository_options {
    const char *const *paths; /* "PATH" or "NAME=PATH": a model file, or a repository directory */
    size_t n_paths;
    const struct repository_params *path_params; /* of each path, which is a single model then;
                                                    NULL: none */
    const char *const *model_repositories;       /* scan.c:scan_repository */
    size_t n_model_repositories;
    const char *backend_dir; /* serve/scheduler/backend.c:backends_get */
    const struct repository_backend_param *backend_params;
    size_t n_backend_params;
    const sluice_backend *const *builtin; /* backends linked into the program; may be NULL */
    size_t n_builtin;
    const struct ensemble_ops *ensemble_ops; /* what runs ensembles; NULL: none can be loaded */
    const char *model_config_name;     /* configs/NAME.pbtxt before config.pbtxt; NULL: none */
    bool disable_auto_complete_config; /* config.pbtxt must have what a model could tell itself */
    uint64_t model_load_retry_count;   /* of a version that failed to load: at once */
    /* Directories whose libraries models may name besides their own: op_library.c:find_library. */
    const char *const *op_library_dirs;
    size_t n_op_library_dirs;
    bool programs_from_requests; /* sluice_model_args.from_request is not set */
    bool gpu_models_on_cpu;      /* serve/config/read.c:take_gpu */
    /* serve/scheduler/placement.c; outlive the repository; NULL: none */
    const struct host_policies *host_policies;
    /* For models without a configured max_batch_size: serve/config/resolve_config.c. */
    uint64_t default_max_batch_size;
    /* Waiting requests per model without a limit of its own; more are refused with QUEUE_FULL:
     * serve/scheduler/scheduler.c:check_queue_size. */
    uint64_t max_queue_size;
    const struct latency_options *latencies; /* outlives the repository; NULL: none */
    /* The most bytes of the outputs of one response; 0: no limit. More are refused with
     * OUTPUT_TOO_LARGE: serve/scheduler/host_callbacks.c:check_response_size. */
    uint64_t slow_reader_timeout_ns; /* 0: none; enforced by partial_response_send */
    uint64_t max_output_size;
    uint64_t cache_size;   /* 0: no cache. serve/scheduler/cache/ */
    bool strict_readiness; /* repository_is_ready */
    /* Loads at start: start.c; on request: repository_change. */
    enum repository_control model_control_mode;
    const char *const *load_models; /* REPOSITORY_EXPLICIT: names, or one "*". start.c */
    size_t n_load_models;
    uint64_t repository_poll_ns;    /* REPOSITORY_POLLED: load.c:wait_for_next */
    size_t model_load_thread_count; /* loads that run at the same time; at least 1 */
    uint64_t model_load_timeout_ns; /* 0: none. changes.c */
    /* All threads that look up and visit; they run until repository_stop was called or their loops
     * ended. NULL and 0: unknown, and replaced models stay in memory. */
    struct worker *const *workers;
    size_t n_workers;
    struct worker *main;
    struct worker *admin; /* NULL: none besides */
    /* Called when a model starts or stops being served, or failed; may be NULL. Thread: any. */
    void (*on_state_changed)(void *user);
    void *on_state_changed_user;
    /* Called when the models of the start are known, before any of them is loaded: it may look up
     * and visit. An error fails the start (repository_start_failed). May be NULL. Thread: a loading
     * thread. */
    enum status (*on_scanned)(void *user, struct error *err);
    void *on_scanned_user;
    /* Called for each opened version before it is served. A front end may attach user data
     * (model_version_set_user_data), or return an error, which fails the load. May be NULL. Thread:
     * the loading thread. */
    enum status (*on_version_opened)(void *user, struct model_version *version, struct error *err);
    void *on_version_opened_user;
    /* Prints a configuration as JSON into `arena`, for backends that want it. May be NULL. Thread:
     * a loading thread. */
    enum status (*print_config)(struct arena *arena, const struct model_config *config,
                                struct str *out, struct error *err);
    /* With which models call models (serve/inference/model_call.h); outlives the repository. NULL:
     * they cannot. */
    const struct sluice_calls *calls;
};

/* Makes a repository without models; no file is read. `path_params` must stay valid. Returns:
 * ST_BAD_CONFIG for settings that exclude each other. */
enum status repository_new(const struct repository_options *options, struct repository **out,
                           struct error *err) SLUICE_MUST_USE;
/* On loading threads: looks for the models, which takes at most model_load_timeout_ns, and loads
 * them. `done` runs on another thread when the scan has failed (repository_start_failed), or all
 * models have loaded or failed. Until the scan has ended no name is known: lookups return
 * ST_NOT_READY, and changes wait for it. */
enum status repository_load_start(struct repository *repository, void (*done)(void *user),
                                  void *user, struct error *err);
/* Looks for the models on the calling thread, before repository_load or in place of the scan of
 * repository_load_start. Returns: ST_BAD_CONFIG when a path does not exist or two models have one
 * name. The error of a single model is kept in its state. */
enum status repository_scan(struct repository *repository, struct error *err) SLUICE_MUST_USE;
/* Loads all models on the calling thread (--check). Returns: ST_BAD_MODEL when any failed. */
enum status repository_load(struct repository *repository, struct error *err);
/* REPOSITORY_POLLED: polls the files now; otherwise does nothing. Thread: any. */
void repository_poll_now(struct repository *repository);
/* Starts no further loads; requests are still served. Idempotent. */
void repository_drain(struct repository *repository);
/* Returns: whether a load, or an unload on request, is running. */
bool repository_is_busy(const struct repository *repository);
/* The response cache counts in the one budget from now on (response_cache.h), and states of
 * sequences in the other (sequence/state.h). Before models are loaded. */
void repository_set_budgets(struct repository *repository, const struct shared_budget *cache,
                            const struct shared_budget *states);
/* Evicts entries of the response cache, `n_bytes` if there are so many. Returns: bytes
 * freed. Thread: any. */
uint64_t repository_shrink_cache(struct repository *repository, uint64_t n_bytes);
/* Refuses requests (NOT_READY), waits until accepted ones are answered by their backends, joins all
 * threads. It waits as long as backends and loads take, without a timeout. Idempotent. */
void repository_stop(struct repository *repository);
/* Stops first if necessary. No worker runs any more, and all responses are released. NULL is
 * allowed. */
void repository_free(struct repository *repository);

/* The loads that run now. */
struct repository_loads {
    size_t n;                     /* running; 0: the last three are not set */
    size_t n_start, n_start_done; /* models of the start, and those of them that have loaded or
                                     failed */
    char model[256];              /* of the load that began first */
    uint64_t version;
    uint64_t began_ns;
};
/* Thread: any. */
void repository_get_loads(struct repository *repository, struct repository_loads *out);

/* Returns: how many directories of models are unavailable: unreadable, suddenly empty, or on
 * another device without any of their models. Their models are kept. Thread: any. */
size_t repository_count_unavailable(const struct repository *repository);

/* Returns: whether the start's scan and loads are done, and (with strict_readiness) none failed.
 * True without any models. */
bool repository_is_ready(const struct repository *repository);

/* Returns: whether the scan of the start failed, and *err says why: nothing is served. Thread: any,
 * when loading has ended. */
bool repository_start_failed(struct repository *repository, struct error *err);
/* Returns: whether models were to be loaded at the start, all of them failed, and nothing but a
 * restart can change that (REPOSITORY_FIXED); with `any`, whether one of them failed, wholly or in
 * a version. *err is the
 * reason of the only one, or names them. Thread: the main thread, when loading has ended. */
bool repository_has_failed(struct repository *repository, bool any, struct error *err);

/* `version_text`: decimal digits; ptr NULL: the highest ready version.
 * Returns: ST_UNKNOWN_MODEL, ST_UNKNOWN_VERSION, or ST_NOT_READY (loading, failed with the
 * reason, or the scan of the start has not ended). Owns: *out until model_version_unref. */
enum status repository_find(struct repository *repository, struct str name, struct str version_text,
                            struct model_version **out, struct error *err) SLUICE_MUST_USE;
/* As repository_find, with the lock. Thread: any. */
enum status repository_find_locked(struct repository *repository, struct str name,
                                   struct str version_text, struct model_version **out,
                                   struct error *err) SLUICE_MUST_USE;
/* The phase of a model or a version. */
enum repository_phase {
    REPOSITORY_LOADING,
    REPOSITORY_READY,
    REPOSITORY_FAILED,
    REPOSITORY_UNLOADING, /* replaced or unloaded, but still referenced by requests */
    REPOSITORY_UNLOADED,
    REPOSITORY_UNTOUCHED, /* known, but not loaded so far */
    REPOSITORY_PHASES,
};

/* One entry of the list of all known models and versions. */
struct repository_entry {
    struct str model;
    uint64_t number; /* version number; 0: the model has no version to load */
    enum repository_phase phase;
    struct model_version *version; /* when ready or unloading; else NULL */
    const char *reason; /* why it failed, why its replacement failed, or why an ensemble has not
                           all its members; "" */
    bool replaced;      /* unloading while other versions of the model are served */
    bool listed;        /* the latest scan found the model's directory or file */
    const char *registered_url; /* of a model that a request registered; NULL: it is none */
};

/* Calls `visit` for each version of each model, by name (byte order) and number, versions being
 * unloaded last, and once for a model without versions. Takes no lock. The entry and what it points
 * to are valid until the worker's next loop iteration. */
void repository_visit(struct repository *repository,
                      void (*visit)(void *user, const struct repository_entry *entry), void *user);
/* Returns: whether repository_visit calls `visit` more than `n` times. Takes as long as `n`. */
bool repository_has_more_than(const struct repository *repository, size_t n);
/* Calls `visit` for each ready version of the model (`name` empty: of all), or for the version of
 * `version_text` (ptr NULL: all). Returns: as repository_find. */
enum status repository_visit_ready(struct repository *repository, struct str name,
                                   struct str version_text,
                                   void (*visit)(void *user, struct model_version *version),
                                   void *user, struct error *err) SLUICE_MUST_USE;

/* ---- changes --------------------------------------------------------------------------------- */

/* A file that replaces the model's directory. */
struct repository_file {
    struct str path; /* "1/model.onnx" */
    struct str data;
};

enum repository_action {
    REPOSITORY_SCAN, /* scan the directories, so that a visit lists new models */
    REPOSITORY_LOAD,
    REPOSITORY_UNLOAD,
};

/* A requested change. The caller sets the first members; everything they point to lives until
 * `done`. */
struct repository_change {
    enum repository_action action;
    struct str model;
    uint64_t version; /* load, unload: that version alone; 0: the model */
    /* load: a directory or file, registered under the model's name first; NULL: none */
    const char *directory;
    /* unload: of such a model, which is unknown afterwards */
    bool unregister;
    struct str config;                   /* load: JSON in place of config.pbtxt; ptr NULL: none */
    const struct repository_file *files; /* load with `config`: files in place of the directory */
    size_t n_files;
    /* unload of an ensemble: also its members that were loaded for it, and that no other ensemble
     * uses */
    bool unload_dependents;
    struct worker *worker; /* where `done` runs */
    void (*done)(struct repository_change *change);
    /* The result: ST_OK; ST_NOT_READY (not REPOSITORY_EXPLICIT, or shutting down), ST_BAD_REQUEST
     * (an invalid model name), ST_UNKNOWN_MODEL, ST_UNKNOWN_VERSION, ST_BAD_MODEL with the reasons,
     * ST_BAD_FIELD; ST_MODEL_EXISTS where the name of a directory is taken. */
    struct error error;
    /* Private to the repository. */
    struct worker_msg msg;
    STAILQ_ENTRY(repository_change) link;
};

/* With a `version` a load adds it to those that are served, whatever version_policy says, and an
 * unload removes it; the others are served on. The next load without a version goes back to the
 * policy.
 *
 * A load with a `directory` is as one of NAME=PATH, given at the start: the directory is a model's,
 * or has one model, or one ensemble beside the models that are its steps, which get the names of
 * their directories. When the load fails, and when the model is unloaded with `unregister`, all of
 * them are forgotten.
 *
 * A load is queued for a thread that may block: loads of different models run concurrently, at most
 * options.model_load_thread_count; those of one model in order. It is done when the model is
 * served. An unload is carried out at once: the model is no longer found, and its loads that have
 * not ended fail with ST_NOT_READY. A scan never waits for a load, and for an unresponsive
 * directory only a short time; all that come while one runs share the next. Thread: any; never
 * blocks. */
void repository_change(struct repository *repository, struct repository_change *change);

/* Returns: the `registered_url` of that model; ptr NULL: it is none. Owns: until the worker's next
 * loop iteration. Thread: as repository_find. */
struct str repository_registered_url(struct repository *repository, struct str name);

/* "loading" */
const char *repository_phase_name(enum repository_phase phase);

/* Prints the resolved configuration of each model, for people: inputs, outputs, batching and its
 * reason, instances, versions, or the error. */
void repository_print(struct repository *repository, struct buf *out);

#endif
