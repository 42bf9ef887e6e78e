/* Files that come with a load request replace the model's directory: they are written into a
 * temporary directory that is removed with the model. File names cannot lead out of it. */
#ifndef SLUICE_SERVE_REPOSITORY_OVERRIDE_H
#define SLUICE_SERVE_REPOSITORY_OVERRIDE_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/repository/repository.h"

/* Makes the directory below $TMPDIR or /tmp, accessible to this user only, and writes the files.
 * Returns: ST_BAD_FIELD for a name that is not VERSION/FILE, ST_IO, ST_NO_MEMORY; on failure the
 * directory is removed. Owns: *directory is in `arena`; the directory exists until
 * override_remove. */
enum status override_write(struct arena *arena, const struct repository_file *files, size_t n,
                           const char **directory, struct error *err) SLUICE_MUST_USE;
/* Removes the directory and its contents. */
void override_remove(const char *directory);

#endif
