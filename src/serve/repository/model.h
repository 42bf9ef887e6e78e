/* A model as it is loaded: where it was found, what its configuration says, which of its versions
 * are to be served, and, once loaded, which are. */
#ifndef SLUICE_SERVE_REPOSITORY_MODEL_H
#define SLUICE_SERVE_REPOSITORY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "serve/config/config.h"
#include "serve/repository/repository.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/version.h"

/* A version that was to be served, and what came of it. */
struct model_attempt {
    uint64_t number;
    struct model_version *version; /* NULL: it failed */
    struct error error;            /* why */
};

/* The versions being served, by rising number. Never changed once published. */
struct ready_list {
    size_t n;
    struct model_version **versions;
    uint64_t *numbers;
};

struct model_slot; /* serve/repository/internal.h */

/* One try at serving a model: what was found, what its configuration said then, and what came of
 * it. A model that is loaded again is another one; both are there until the first is let go. */
struct model {
    struct arena *arena;           /* everything here, this struct included, lives in it */
    struct model *next;            /* of those that are let go (retire.c) */
    struct model_slot *model_slot; /* whose it is, then */
    bool mark_sent, quiescent; /* then: workers are coming through; all have: nobody finds it any
                                    more */

    struct str name;
    struct str source;                  /* the file, or the model's directory */
    struct str directory;               /* the model's directory; "" for a file */
    const sluice_backend *file_backend; /* of a single file: who knows its extension */
    struct str override_config;         /* JSON that stands in for config.pbtxt; ptr NULL: none */
    const char *temporary_directory;    /* a directory to be removed with it; NULL:
                                                     none */
    bool has_config;
    const struct repository_params *params; /* merged over the configuration's; NULL: none */
    struct model_config config;
    struct model_attempt *attempts; /* by rising number */
    size_t n_attempts;
    const struct ready_list *ready; /* NULL: until loaded, and when nothing came of it */
    struct error error;             /* status ST_OK: nothing is wrong */
    uint64_t fingerprint;           /* of the files, before any was read
                                       (serve/config/fingerprint.h) */
    bool unloaded;                  /* it was served until somebody had it unloaded */
};

/* Where a model was found. */
struct model_origin {
    struct str name;
    struct str path;                        /* the file, or the directory */
    const sluice_backend *file_backend;     /* of a single file; NULL: a directory */
    const struct repository_params *params; /* NULL: none */
    bool pinned; /* named by itself, not found in a directory of models */
};

/* Models found so far, and the directories they were found in, which may get more. Memory is in
 * `arena`. */
struct model_list {
    struct arena *arena;
    struct backends *backends;
    struct model_origin *items;
    size_t n;
    size_t cap;
    struct str *roots;
    size_t n_roots;
};

/* Appends one. Returns: false when memory is out. */
bool model_list_add(struct model_list *list, const struct model_origin *origin);

/* May a model have this name? Not empty, at most 255 bytes of UTF-8, no '/', no control characters,
 * neither "." nor "..". */
bool model_name_is_valid(struct str name);

/* Appends what `argument` names: "PATH" or "NAME=PATH", PATH being a model file, a model's
 * directory, or (without a name and without `params`) a directory of those. Returns:
 * ST_BAD_CONFIG. */
enum status scan_path(struct model_list *list, const char *argument,
                      const struct repository_params *params, struct error *err)
    __attribute__((warn_unused_result));
/* Appends all models of a directory of models, which may be empty. Returns: ST_BAD_CONFIG. */
enum status scan_repository(struct model_list *list, const char *path, struct error *err)
    __attribute__((warn_unused_result));

/* Appends the models that are in the directory of models now. Returns: ST_BAD_CONFIG. */
enum status scan_root(struct model_list *list, struct str root, struct error *err)
    __attribute__((warn_unused_result));

/* A model to be loaded from there, in an arena of its own; `origin` may go. Returns: NULL when
 * memory is out. */
struct model *model_new(const struct model_origin *origin);
/* None of its versions is open. NULL is allowed. */
void model_free(struct model *model);

/* Is there a directory of that path, or a link to one? */
bool model_dir_exists(const char *path);
/* Does the directory hold what makes it a model: config.pbtxt, or a directory named by a number? */
bool model_dir_is_model(const char *path);
/* A version's directory: a number from 1 on, without leading zeros. */
bool model_dir_version(const char *name, uint64_t *out);
/* Takes the fingerprint, reads the configuration and chooses the versions; what is wrong is left in
 * model->error. */
void model_inspect(struct model *model);

/* Finds the backend and the file of one version. Returns: ST_BAD_MODEL saying what was looked
 * for. */
enum status model_find_file(struct backends *backends, const struct model *model, uint64_t number,
                            const sluice_backend **backend, struct str *path, struct error *err)
    __attribute__((warn_unused_result));

#endif
