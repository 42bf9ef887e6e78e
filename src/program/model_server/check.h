/* `sluice serve --check`: everything is read and loaded, nothing is listened on. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_CHECK_H
#define SLUICE_PROGRAM_MODEL_SERVER_CHECK_H

#include "program/model_server/settings.h"
#include "serve/repository/repository.h"

/* Prints on standard output what every model came to, and what MIP makes of those that it serves.
 * Returns: the exit code; what is wrong is said on standard error or in the log. */
int serve_check(const struct serve_settings *settings, const struct repository_options *options,
                struct arena *arena);

#endif
