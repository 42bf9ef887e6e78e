/* Opens files that a model's configuration names: labels and samples of a warm-up. */
#ifndef SLUICE_SERVE_CONFIG_MODEL_FILE_H
#define SLUICE_SERVE_CONFIG_MODEL_FILE_H

#include <stdio.h>

#include "serve/config/config.h"

/* Opens `path`, which is a file below the model's `directory` by its name. Where a request gave the
 * configuration, but not the files (MODEL_FILES_PUBLIC), its lines could be read by the client:
 * symbolic links must then lead to a file of `directory` that is neither config.pbtxt nor in the
 * directory of a version. `config` NULL: the server's own settings name the file.
 * Returns: as regular_file_open. Owns: the caller closes it. Thread: any. */
FILE *model_file_open(const struct model_config *config, struct str directory, const char *path,
                      const char **reason);

#endif
