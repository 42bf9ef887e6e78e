/* Files that come with a load request replace the model's directory: they are written into a
 * temporary directory that is removed with the model. File names cannot lead out of it. */
#ifndef SLUICE_SERVE_REPOSITORY_OVERRIDE_H
#define SLUICE_SERVE_REPOSITORY_OVERRIDE_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/repository/repository.h"

/* A temporary directory. Its owner holds a lock (flock) of it, which ends with the process. */
struct override_directory {
    const char *path; /* NULL: none */
    int lock;         /* a descriptor of the directory */
};

/* Makes the directory below $TMPDIR or /tmp, accessible to this user only, and writes the files.
 * Returns: ST_BAD_FIELD for a name that is not VERSION/FILE, is there twice, or is a file and the
 * directory of another; ST_IO, ST_NO_MEMORY; on failure the directory is removed. Owns: out->path
 * is in `arena`; the directory exists until override_remove. */
enum status override_write(struct arena *arena, const struct repository_file *files, size_t n,
                           struct override_directory *out, struct error *err) SLUICE_MUST_USE;
/* Removes the directory and its contents. */
void override_remove(const struct override_directory *directory);
/* Removes the directories of processes that were killed. */
void override_remove_stale(void);

#endif
