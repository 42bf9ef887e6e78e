/* Libraries of operators that a model's configuration names: native code that will run in this
 * process, so that it is taken from the model's own files and from directories of the operator
 * only. */
#ifndef SLUICE_SERVE_REPOSITORY_OP_LIBRARY_H
#define SLUICE_SERVE_REPOSITORY_OP_LIBRARY_H

#include "core/base/status.h"
#include "serve/repository/model.h"

/* The directories of --op-library-dir. */
struct op_library_places {
    const char *const *directories;
    size_t n_directories;
};

/* Finds the libraries of model->config: a relative name in the version's directory, the model's,
 * and those of `places`, in this order; an absolute one where it is. The file must be in one of
 * these directories after symbolic links are followed. A configuration or files that came with a
 * request have only those of `places`. Returns: ST_BAD_MODEL, with the place in the configuration.
 * Owns: *out, paths without symbolic links, is in the model's arena. Thread: any that may block. */
enum status op_libraries_find(const struct model *model, uint64_t version,
                              const struct op_library_places *places, const char *const **out,
                              size_t *n, struct error *err) SLUICE_MUST_USE;

#endif
