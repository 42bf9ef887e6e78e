/* A model as the repository keeps it: where it was found, what its configuration says, which of its
 * versions are to be served, and, once loaded, which are. */
#ifndef SLUICE_MODEL_MODEL_H
#define SLUICE_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"
#include "model/backend.h"
#include "model/config.h"
#include "model/version.h"

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

struct model {
    struct str name;
    struct str source;                  /* the file, or the model's directory */
    struct str directory;               /* the model's directory; "" for a file */
    const sluice_backend *file_backend; /* of a single file: who knows its extension */
    bool has_config;
    const struct repository_params *params; /* merged over the configuration's; NULL: none. Only
                                               until model_inspect has read them */
    struct model_config config;
    struct model_attempt *attempts; /* by rising number */
    size_t n_attempts;
    struct error error; /* status ST_OK: nothing is wrong. Written before `settled` */

    atomic_bool settled;                      /* loading has ended, well or not */
    _Atomic(const struct ready_list *) ready; /* NULL until settled, and when nothing is served */
};

/* Models found so far. Memory is in `arena`. */
struct model_list {
    struct arena *arena;
    struct backends *backends;
    struct model **items;
    size_t n;
    size_t cap;
};

/* May a model have this name? Not empty, at most 255 bytes of UTF-8, no '/', no control characters,
 * neither "." nor "..". */
bool model_name_ok(struct str name);

/* Appends what `argument` names: "PATH" or "NAME=PATH", PATH being a model file, a model's
 * directory, or (without a name and without `params`) a directory of those. Returns:
 * ST_BAD_CONFIG. */
enum status scan_path(struct model_list *list, const char *argument,
                      const struct repository_params *params, struct error *err)
    __attribute__((warn_unused_result));
/* Appends all models of a directory of models, which may be empty. Returns: ST_BAD_CONFIG. */
enum status scan_repository(struct model_list *list, const char *path, struct error *err)
    __attribute__((warn_unused_result));

/* Is there a directory of that path, or a link to one? */
bool model_dir_exists(const char *path);
/* Does the directory hold what makes it a model: config.pbtxt, or a directory named by a number? */
bool model_dir_is_model(const char *path);
/* A version's directory: a number from 1 on, without leading zeros. */
bool model_dir_version(const char *name, uint64_t *out);
/* Reads the configuration and chooses the versions; what is wrong is left in model->error. Returns:
 * ST_NO_MEMORY only. */
enum status model_inspect(struct arena *arena, struct model *model, struct error *err)
    __attribute__((warn_unused_result));

/* Finds the backend and the file of one version. Returns: ST_BAD_MODEL saying what was looked
 * for. */
enum status model_locate(struct arena *arena, struct backends *backends, const struct model *model,
                         uint64_t number, const sluice_backend **backend, struct str *path,
                         struct error *err) __attribute__((warn_unused_result));

#endif
