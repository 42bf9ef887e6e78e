/* The models being served: found in directories or given as files, loaded in the background, looked
 * up by name and version on every request. A lookup takes no lock. A model that fails to load
 * leaves the others serving, and says why.
 *
 * While it serves, models may be loaded anew, come and go (repository_change, or by watching their
 * files). What is new is opened and warmed up first and then takes the place of the old, in one
 * step; the old one serves those who found it before and is closed when the last of them has let
 * go. A load that fails leaves what is served as it is.
 *
 * Thread: repository_new, _load_start, _stop and _free on the main thread. Looking up and visiting:
 * on the workers and the main worker of the options, or, without those, on any. Everything else on
 * any. */
#ifndef SLUICE_SERVE_REPOSITORY_REPOSITORY_H
#define SLUICE_SERVE_REPOSITORY_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "core/tensor/tensor.h"
#include "serve/scheduler/model_version.h"
#include "sluice/backend.h"

struct repository;

/* Parameters of a model that the server's own settings give; they win over its config.pbtxt. */
struct repository_param {
    struct str name;
    struct str value;
};
struct repository_params {
    const struct repository_param *items;
    size_t n;
};

/* Who decides what is loaded. */
enum repository_control {
    REPOSITORY_FIXED,    /* everything at the start, and then no more */
    REPOSITORY_POLLED,   /* everything; the files are looked at from time to time */
    REPOSITORY_EXPLICIT, /* `load` at the start, the rest when somebody asks */
};

enum { REPOSITORY_MAX_LOADS = 64 /* at once */ };

struct repository_options {
    const char *const *paths; /* "PATH" or "NAME=PATH": a model file, or a repository directory */
    size_t n_paths;
    const struct repository_params *path_params; /* of each path, which is one model then; NULL: no
                                                    path has any */
    const char *const *directories;              /* --model-repository */
    size_t n_directories;
    const char *backend_dir;
    const sluice_backend *const *builtin; /* backends linked into the program; may be NULL */
    size_t n_builtin;
    uint64_t default_max_batch_size; /* where a model without configuration may batch: 64 */
    uint64_t max_queue_size;         /* waiting requests per model before QUEUE_FULL */
    uint64_t cache_size;             /* for answers of models that ask for it; 0: none is kept */
    bool strict_readiness;           /* ready only when every model is */
    enum repository_control control;
    const char *const *load; /* REPOSITORY_EXPLICIT: names, or one "*": all */
    size_t n_load;
    uint64_t poll_ns; /* REPOSITORY_POLLED: between two looks at the files */
    size_t n_loads;   /* models that may be loaded at once on request; 0: 1 */
    /* The threads that look up and visit, which all run until after repository_stop has been called
     * or their loops have ended; NULL and 0: unknown, and then what is replaced stays in memory. */
    struct worker *const *workers;
    size_t n_workers;
    struct worker *main;
    /* Called when a model has begun or ceased to be served, or has failed; may be NULL. Thread:
     * any. */
    void (*on_state_changed)(void *user);
    void *on_state_changed_user;
    /* Called for each version when it has been opened and before it is served: a front end may make
     * what it needs of it (model_version_set_user_data), or refuse it, and then it has failed to
     * load. May be NULL. Thread: the one that loads. */
    enum status (*on_version_opened)(void *user, struct model_version *version, struct error *err);
    void *on_version_opened_user;
};

/* Reads the directories and configurations: names are known, nothing is loaded. Returns:
 * ST_BAD_CONFIG when a path does not exist or two models have one name. What is wrong with a single
 * model is kept for its state. */
enum status repository_new(const struct repository_options *options, struct repository **out,
                           struct error *err) __attribute__((warn_unused_result));
/* Loads all models on a thread of its own; `done` runs on that thread when all have loaded or
 * failed. */
enum status repository_load_start(struct repository *repository, void (*done)(void *user),
                                  void *user, struct error *err);
/* The same on the calling thread (--check). Returns: ST_BAD_MODEL when any failed. */
enum status repository_load(struct repository *repository, struct error *err);
/* REPOSITORY_POLLED: the files are looked at without waiting for the next time; otherwise nothing.
 * Thread: any. */
void repository_poll_now(struct repository *repository);
/* Nothing is loaded any more but what has been begun; requests are still served. Idempotent. */
void repository_drain(struct repository *repository);
/* Is something being loaded, or unloaded by request? */
bool repository_is_busy(const struct repository *repository);
/* Stops taking requests (NOT_READY), waits until those taken are answered by their backends, ends
 * all threads. It waits as long as the backends and the loader need: who must end sooner ends the
 * process. Idempotent. */
void repository_stop(struct repository *repository);
/* Stops first, if that was not done. When this is called no worker runs any more and every response
 * was released. NULL is allowed. */
void repository_free(struct repository *repository);

/* Loaded completely, and (with strict_readiness) without a failure? No models at all counts as
 * ready. */
bool repository_is_ready(const struct repository *repository);

/* `version_text` with ptr NULL: the highest ready version. Otherwise decimal digits.
 * Returns: ST_UNKNOWN_MODEL, ST_UNKNOWN_VERSION, or ST_NOT_READY (loading, or failed with the
 * reason).
 * Owns: *out until model_version_unref. */
enum status repository_find(struct repository *repository, struct str name, struct str version_text,
                            struct model_version **out, struct error *err)
    __attribute__((warn_unused_result));
/* How far a model, or a version of it, is. */
enum repository_phase {
    REPOSITORY_LOADING,
    REPOSITORY_READY,
    REPOSITORY_FAILED,
    REPOSITORY_UNLOADING, /* replaced or unloaded, and requests that found it before still hold
                             it */
    REPOSITORY_UNLOADED,
    REPOSITORY_UNTOUCHED, /* it is there and nobody asked for it yet */
    REPOSITORY_PHASES,
};

/* One line of the list of everything that was to be served. */
struct repository_entry {
    struct str model;
    uint64_t number; /* of the version; 0: the model has none that could be tried */
    enum repository_phase phase;
    struct model_version *version; /* when it is ready or being unloaded; else NULL */
    const char *reason;            /* why it failed, or why the last try to replace it did; "" */
    bool replaced;                 /* being unloaded while others of the model are served */
    bool listed; /* the model's directory or file was there when somebody looked last */
};

/* Calls `visit` for each version of each model, by the bytes of the name and by rising number,
 * those being unloaded behind the others, and once for a model without one. Takes no lock. The
 * entry, and what it points to, are borrowed until the worker's next turn. */
void repository_visit(struct repository *repository,
                      void (*visit)(void *user, const struct repository_entry *entry), void *user);
/* Calls `visit` for each ready version of the model (`name` empty: of all), or for the one that
 * `version_text` names (ptr NULL: none does). Returns: as repository_find. */
enum status repository_visit_ready(struct repository *repository, struct str name,
                                   struct str version_text,
                                   void (*visit)(void *user, struct model_version *version),
                                   void *user, struct error *err)
    __attribute__((warn_unused_result));

/* ---- changes --------------------------------------------------------------------------------- */

/* A file that stands in for one of the model's directory. */
struct repository_file {
    struct str path; /* "1/model.onnx" */
    struct str data;
};

enum repository_action {
    REPOSITORY_SCAN, /* which models there are now, so that a visit tells */
    REPOSITORY_LOAD,
    REPOSITORY_UNLOAD,
};

/* What somebody asks for. All but the last part is set by who asks; everything it points to stays
 * until `done`. */
struct repository_change {
    enum repository_action action;
    struct str model;
    struct str config; /* of a load: JSON instead of config.pbtxt; ptr NULL: none */
    const struct repository_file *files; /* of a load, with `config`: instead of the directory */
    size_t n_files;
    struct worker *worker; /* where `done` runs */
    void (*done)(struct repository_change *change);
    /* The outcome: ST_OK; ST_NOT_READY (not REPOSITORY_EXPLICIT, or ending), ST_BAD_REQUEST (a name
     * that no model can have), ST_IO (no such model to load), ST_BAD_MODEL with the reasons,
     * ST_BAD_FIELD. */
    struct error error;
    /* the repository's */
    struct worker_msg msg;
    struct repository_change *next;
};

/* Has it done, on a thread that may block: changes of different models at once, as many as
 * options.n_loads, those of one model in the order in which they were asked for. A load is done
 * when the model is served, an unload when it is found no more. Thread: any; never blocks. */
void repository_change(struct repository *repository, struct repository_change *change);

/* "loading" */
const char *repository_phase_name(enum repository_phase phase);

/* Prints what each model resolved to, for people: inputs, outputs, batch dimension and why,
 * instances, versions, or why it failed. */
void repository_print(struct repository *repository, struct buf *out);

#endif
