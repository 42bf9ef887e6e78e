/* The running server: puts the rooms together and takes them apart again. The main thread accepts
 * connections, hears signals and waits; workers serve; a thread loads the models.
 *
 *     listening → (models loaded) ready → SIGTERM: draining → nothing in flight: stopping → ended
 */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_PROCESS_H
#define SLUICE_PROGRAM_MODEL_SERVER_PROCESS_H

#include "core/base/status.h"
#include "program/model_server/settings.h"
#include "serve/repository/repository.h"

/* Serves until SIGTERM or SIGINT, then until what is in flight has ended, or --drain-timeout. A
 * second signal ends the process at once. Returns: ST_OK when it ended as asked, else why it could
 * not start. */
enum status serve_process_run(const struct serve_settings *settings,
                              const struct repository_options *models, struct error *err);

/* `sluice serve --check`: everything is read and loaded, nothing is listened on. */
/* Prints on standard output what every model came to, and what MIP makes of those that it serves.
 * Returns: the exit code; what is wrong is said on standard error or in the log. */
int serve_check(const struct serve_settings *settings, const struct repository_options *options,
                struct arena *arena);

#endif
