/* Resolves the path of a model's file. */
#ifndef SLUICE_COMMON_PATH_H
#define SLUICE_COMMON_PATH_H

#include <stddef.h>

/* A model with external weights may be a directory that contains `name`. Returns: `path`, or the
 * path of that file, written to `text`. */
const char *model_file_path(const char *path, const char *name, char *text, size_t n_bytes);

#endif
