/* A model in the repository: its origin, its configuration, and its versions. */
#ifndef SLUICE_SERVE_REPOSITORY_MODEL_H
#define SLUICE_SERVE_REPOSITORY_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/lock.h"
#include "serve/config/config.h"
#include "serve/repository/override.h"
#include "serve/repository/repository.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/version.h"

/* A version to be served, and the result of loading it. */
struct model_attempt {
    uint64_t number;
    struct model_version *version; /* NULL: it failed, or another model has taken it over */
    struct error error;            /* why it failed */
    uint64_t fingerprint;          /* of its files, taken before they are read; 0: unknown */
    bool kept;          /* `version` is the served model's, to be taken over (kept_versions.c) */
    struct model *home; /* the model that opened it, whose arena it uses; NULL: this one */
};

/* The served versions, ascending. Immutable once published. */
struct ready_list {
    size_t n;
    struct model_version **versions;
    uint64_t *numbers;
    struct version_numbers siblings; /* the same, for the versions */
};

struct model_slot; /* serve/repository/internal.h */

/* One attempt to serve a model: its files and configuration at that time, and the result. Loading a
 * model again makes a new one; both exist until the first is closed. */
struct model {
    struct arena *arena;           /* contains everything here, this struct included */
    struct model *next;            /* in a list of retired models (names.c) */
    struct model_slot *model_slot; /* the slot that retired it, until it is closed */
    bool mark_sent, quiescent;     /* retired: marks are under way; have passed all workers */

    struct str name;
    struct str source;                  /* the file, or the model's directory */
    struct str directory;               /* the model's directory; "" for a file */
    const sluice_backend *file_backend; /* of a single file: the backend of its extension */
    struct str override_config;         /* JSON in place of config.pbtxt; ptr NULL: none */
    struct override_directory temporary_directory; /* removed when it is closed, or freed */
    bool has_config;
    const struct repository_params *params; /* override those of config.pbtxt; NULL: none */
    struct model_config config;
    struct model_attempt *attempts; /* ascending by number */
    size_t n_attempts;
    const struct ready_list *ready; /* NULL: not loaded, or failed */
    struct error error;             /* status ST_OK: no error */
    uint64_t fingerprint;           /* taken before any file is read (serve/config/fingerprint.h) */
    uint64_t common_fingerprint;    /* of what all versions have in common: the files outside their
                                       directories, and override_config */
    atomic_size_t refs;             /* itself, and the attempts of other models whose home it is */
    uint64_t only_version; /* a load of that version, beside `others`; 0: of those of the policy */
    const uint64_t *others;
    size_t n_others;
    bool by_version; /* requests for single versions chose what is served */
    bool unloaded;   /* it was served, until it was unloaded by request */
    bool abandoned;  /* its load was given up: the result is discarded; under the lock */
};

/* Calls `act` for each version that was opened; `model` may be NULL. */
static inline void model_for_each_version(const struct model *model,
                                          void (*act)(struct model_version *)) {
    for (size_t i = 0; model && i < model->n_attempts; i++) {
        if (model->attempts[i].version) {
            act(model->attempts[i].version);
        }
    }
}

/* Which configuration a model has. */
struct config_rules {
    const char *name;      /* configs/NAME.pbtxt has precedence over config.pbtxt; NULL: none */
    bool must_be_complete; /* nothing that it leaves out is read from the model */
    struct model_config_rules reading;
};

/* Where a model was found. */
struct model_origin {
    struct str name;
    struct str path;                        /* the file, or the directory */
    const sluice_backend *file_backend;     /* of a single file; NULL: a directory */
    const struct repository_params *params; /* NULL: none */
    bool pinned;                            /* given by path, not found in a directory of models */
    struct str other; /* another directory of models has the name, too: where. len 0: none */
};

/* Why a model that two directories of models have is not loaded. */
#define MODEL_IS_AMBIGUOUS "model appears in two or more repositories"
static inline bool model_origin_is_ambiguous(const struct model_origin *origin) {
    return origin->other.len > 0;
}

/* A directory that is scanned again. */
struct model_root {
    struct str path;
    bool has_files; /* of model files, each a model; otherwise of directories of models */
};

/* Found models, and the directories of models to scan again. Memory is in `arena`. */
struct model_list {
    struct arena *arena;
    struct backends *backends;
    struct lock *backends_lock; /* held while they are used; NULL: no other thread uses them */
    struct model_origin *items;
    size_t n;
    size_t cap;
    struct model_root *roots;
    size_t n_roots;
};

/* Returns: false when out of memory. */
bool model_list_add(struct model_list *list, const struct model_origin *origin);

/* Returns: whether a model can have this name: 1 to 255 bytes of UTF-8, no '/', no control
 * characters, neither "." nor "..". */
bool model_name_is_valid(struct str name);

/* Adds a found model; of one that the list has already only `other` is noted. Returns: false when
 * out of memory. */
bool model_list_merge(struct model_list *list, const struct model_origin *origin);

/* Adds what `argument` names: "PATH" or "NAME=PATH", where PATH is a model file, a model's
 * directory, or (without a name and without `params`) a directory of models. Returns:
 * ST_BAD_CONFIG. */
enum status scan_path(struct model_list *list, const char *argument,
                      const struct repository_params *params, struct error *err) SLUICE_MUST_USE;
/* Adds the one model that the file or directory is or has, under that name. Returns:
 * ST_BAD_CONFIG. */
enum status scan_named(struct model_list *list, struct str name, const char *path,
                       struct error *err) SLUICE_MUST_USE;
/* Adds all models of a directory of models, which may be empty, and may have been added before.
 * Returns: ST_BAD_CONFIG. */
enum status scan_repository(struct model_list *list, const char *path,
                            struct error *err) SLUICE_MUST_USE;

/* Adds the models that a directory of models contains now. Returns: ST_BAD_CONFIG. */
enum status scan_root(struct model_list *list, const struct model_root *root,
                      struct error *err) SLUICE_MUST_USE;

/* Makes a model to be loaded from `origin`, which is copied, in an arena of its own. Returns: NULL
 * when out of memory. */
struct model *model_new(const struct model_origin *origin);
/* Removes the files that came with a request. No version is open. */
void model_remove_files(struct model *model);
/* No version is open. NULL is allowed. */
void model_free(struct model *model);

/* Returns: whether `path` is a directory, or a link to one. */
bool model_dir_exists(const char *path);
/* Returns: whether the directory is a model's: it contains config.pbtxt or a directory named by a
 * number. */
bool model_dir_is_model(const char *path);
/* Returns: whether `name` is a version's directory: a number from 1 on, without leading zeros. */
bool model_dir_version(const char *name, uint64_t *out);
/* Takes the fingerprint, reads the configuration by the rules and selects the versions. An error is
 * stored in model->error. `*cancelled` (NULL: never) ends the look at the files. */
void model_inspect(struct model *model, const struct config_rules *rules,
                   const atomic_bool *cancelled);

/* Finds the backend and the file of a version. `lock` guards `backends`; it is not held while files
 * are looked at. Returns: ST_BAD_MODEL, which lists the names that were tried. */
enum status model_find_file(struct backends *backends, struct lock *lock, const struct model *model,
                            uint64_t number, const sluice_backend **backend, struct str *path,
                            struct error *err) SLUICE_MUST_USE;

#endif
