/* Packed environments (EXECUTION_ENV_PATH of a .tar.gz, as conda-pack makes them), each unpacked
 * once into a cache that all servers of a user share. */
#ifndef SLUICE_PYTHON_ENVIRONMENT_H
#define SLUICE_PYTHON_ENVIRONMENT_H

#include <stdint.h>

#include "sluice/backend.h"

/* Returns: whether the path is that of a packed environment. */
int environment_is_packed(const char *path);

/* Finds the environment in the cache, or unpacks it there and runs its bin/conda-unpack, which
 * corrects paths in its files. It may wait for another server that does so. `cache`: a directory;
 * NULL: sluice/python-environments in that of the user's caches. `directory` gets its path. *lock:
 * a descriptor, to be closed when the environment is not used any more; -1 on failure.
 * Returns: SLUICE_INVALID_ARGUMENT or SLUICE_INTERNAL with a text that names the file. */
sluice_status environment_unpack(const char *path, const char *cache, uint64_t max_bytes,
                                 char *directory, size_t n_bytes, int *lock, sluice_error *error);

#endif
