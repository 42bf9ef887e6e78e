/* Files that come with the request to load a model, instead of those in its directory: they are
 * written into a directory of their own, which goes with the model. Nothing outside of it can be
 * named. */
#ifndef SLUICE_SERVE_REPOSITORY_OVERRIDE_H
#define SLUICE_SERVE_REPOSITORY_OVERRIDE_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/repository/repository.h"

/* Makes the directory, below $TMPDIR or /tmp, readable by nobody else, and writes the files.
 * Returns: ST_BAD_FIELD for a name that is not VERSION/FILE, ST_IO, ST_NO_MEMORY; nothing is left
 * behind then. Owns: *directory lies in `arena`; the directory itself until override_remove. */
enum status override_write(struct arena *arena, const struct repository_file *files, size_t n,
                           const char **directory, struct error *err)
    __attribute__((warn_unused_result));
/* Removes the directory with everything in it. */
void override_remove(const char *directory);

#endif
