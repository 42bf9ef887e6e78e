/* Reads a file of a model into memory, so that a later change of the file cannot reach it. */
#ifndef SLUICE_COMMON_FILE_H
#define SLUICE_COMMON_FILE_H

#include <stddef.h>

#include "sluice/backend.h"

struct file {
    char *data; /* freed by the owner of the struct */
    size_t n_bytes;
};

/* Reads all of a regular file; never blocks on a pipe. `inside`: a directory that must contain the
 * file after symbolic links are followed; NULL: anywhere.
 * Returns: SLUICE_NOT_FOUND, SLUICE_INVALID_ARGUMENT (not a regular file, outside, or changed while
 * it was read), SLUICE_INTERNAL (an I/O error), SLUICE_NO_MEMORY; the text names the path. */
sluice_status file_read(struct file *file, const char *path, const char *inside,
                        sluice_error *error);

#endif
