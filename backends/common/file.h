/* Reads a file of a model into memory, so that a later change of the file cannot reach it. */
#ifndef SLUICE_COMMON_FILE_H
#define SLUICE_COMMON_FILE_H

#include <stddef.h>

#include "sluice/backend.h"

struct file {
    char *data; /* freed by the owner of the struct */
    size_t n_bytes;
};

/* What a file must be. */
struct file_rules {
    size_t max_bytes;          /* 0: no limit */
    const char *too_large;     /* ends the sentence of the error: "is larger than …" */
    const char *const *inside; /* `n_inside` directories, without symbolic links, of which one must
                                  contain the file after symbolic links are followed */
    size_t n_inside;           /* 0: anywhere */
};

/* Reads all of a regular file; opens nothing else, as a device or a pipe. `real` (NULL: not wanted)
 * becomes the path of the opened file without symbolic links, allocated, NULL when it is not known.
 * Returns: SLUICE_NOT_FOUND, SLUICE_INVALID_ARGUMENT (not a regular file, too large, outside, or
 * changed while it was read), SLUICE_INTERNAL (an I/O error), SLUICE_NO_MEMORY; the text names the
 * path. */
sluice_status file_read(struct file *file, const char *path, const struct file_rules *rules,
                        char **real, sluice_error *error);

#endif
