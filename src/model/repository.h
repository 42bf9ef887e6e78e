/* The models being served: found in directories or given as files, loaded in the background, looked
 * up by name and version on every request. A lookup takes no lock. A model that fails to load
 * leaves the others serving, and says why.
 *
 * Thread: repository_new, _load_start, _stop and _free on the main thread; everything else on
 * any. */
#ifndef SLUICE_MODEL_REPOSITORY_H
#define SLUICE_MODEL_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "sluice/backend.h"
#include "tensor/tensor.h"

struct repository;
struct model_config;  /* model/config.h */
struct model_version; /* a served version: specification, backend model, instances, queue */

/* Parameters of a model that the server's own settings give; they win over its config.pbtxt. */
struct repository_param {
    struct str name;
    struct str value;
};
struct repository_params {
    const struct repository_param *items;
    size_t n;
};

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
    bool strict_readiness;           /* ready only when every model is */
    /* Called for each version when it has been opened and before it is served: a front end may make
     * what it needs of it (model_version_keep), or refuse it, and then it has failed to load. May
     * be NULL. Thread: the one that loads. */
    enum status (*opened)(void *cookie, struct model_version *version, struct error *err);
    void *opened_cookie;
};

/* Reads the directories and configurations: names are known, nothing is loaded. Returns:
 * ST_BAD_CONFIG when a path does not exist or two models have one name. What is wrong with a single
 * model is kept for its state. */
enum status repository_new(const struct repository_options *options, struct repository **out,
                           struct error *err) __attribute__((warn_unused_result));
/* Loads all models on a thread of its own; `done` runs on that thread when all have loaded or
 * failed. */
enum status repository_load_start(struct repository *repository, void (*done)(void *cookie),
                                  void *cookie, struct error *err);
/* The same on the calling thread (--check). Returns: ST_BAD_MODEL when any failed. */
enum status repository_load(struct repository *repository, struct error *err);
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
/* One reference more. */
void model_version_ref(struct model_version *version);
void model_version_unref(struct model_version *version);

const struct model_spec *model_version_spec(const struct model_version *version);
/* All ready versions of the same model, ascending; borrowed while `version` is referenced. */
const uint64_t *model_version_siblings(const struct model_version *version, size_t *n);
/* The configuration, completed: inputs and outputs are in the order of the specification. */
const struct model_config *model_version_config(const struct model_version *version);
/* Where the files lie that its configuration names: the model's directory; for a model that is a
 * single file, that file's. Without a '/' at the end; "." for a bare file name. */
struct str model_version_directory(const struct model_version *version);

/* What a front end keeps with a version, and the memory for it: only during `opened`. */
struct arena *model_version_arena(struct model_version *version);
void model_version_keep(struct model_version *version, const void *kept);
/* NULL: nothing. Thread: any. */
const void *model_version_kept(const struct model_version *version);

/* How far a model, or a version of it, is. */
enum repository_phase {
    REPOSITORY_LOADING,
    REPOSITORY_READY,
    REPOSITORY_FAILED,
    REPOSITORY_PHASES,
};

/* One line of the list of everything that was to be served. */
struct repository_entry {
    struct str model;
    uint64_t number; /* of the version; 0: the model has none that could be tried */
    enum repository_phase phase;
    struct model_version *version; /* when it is ready; borrowed until repository_free */
    const char *reason;            /* why it failed; "" */
};

/* Calls `visit` for each version of each model, by the bytes of the name and by rising number, and
 * once for a model without one. Takes no lock. */
void repository_visit(struct repository *repository,
                      void (*visit)(void *cookie, const struct repository_entry *entry),
                      void *cookie);
/* Calls `visit` for each ready version of the model (`name` empty: of all), or for the one that
 * `version_text` names (ptr NULL: none does). Returns: as repository_find. */
enum status repository_visit_ready(struct repository *repository, struct str name,
                                   struct str version_text,
                                   void (*visit)(void *cookie, struct model_version *version),
                                   void *cookie, struct error *err)
    __attribute__((warn_unused_result));
/* "loading" */
const char *repository_phase_name(enum repository_phase phase);

/* Prints what each model resolved to, for people: inputs, outputs, batch dimension and why,
 * instances, versions, or why it failed. */
void repository_print(struct repository *repository, struct buf *out);

#endif
