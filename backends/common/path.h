/* Where a model's file is. */
#ifndef SLUICE_COMMON_PATH_H
#define SLUICE_COMMON_PATH_H

#include <stddef.h>

/* A model whose weights are in files of their own may be a directory with `name` in it. Returns:
 * `path`, or the path of that file, written to `text`. */
const char *model_file_path(const char *path, const char *name, char *text, size_t n_bytes);

#endif
