/* Opening a file that must be a regular one: opening a pipe waits for its writer, possibly for
 * ever, and a device may have no end. */
#ifndef SLUICE_CORE_BASE_REGULAR_FILE_H
#define SLUICE_CORE_BASE_REGULAR_FILE_H

#include <stdio.h>

/* Returns: the file, opened for reading; NULL when that fails, with *reason set to a static or
 * thread-local text, and errno; EINVAL: not a regular file. Owns: the caller closes it. Thread:
 * any. */
FILE *regular_file_open(const char *path, const char **reason);

#endif
