/* The process of `sluice serve`: it creates the modules, connects them, and ends them in order. The
 * main thread accepts connections and handles signals; workers serve; a thread loads the models.
 *
 *     listening → (models loaded) ready → SIGTERM: draining → nothing in flight: stopping → ended
 */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_PROCESS_H
#define SLUICE_PROGRAM_MODEL_SERVER_PROCESS_H

#include "core/base/status.h"
#include "program/model_server/settings.h"
#include "serve/repository/repository.h"

/* Serves until SIGTERM or SIGINT, then until no request is in flight, or --drain-timeout. A second
 * signal exits at once. Returns: ST_OK after a shutdown, else why it could not start. */
enum status serve_process_run(const struct serve_settings *settings,
                              const struct repository_options *models, struct error *err);

/* check.c: `sluice serve --check`, which loads everything and does not listen. Prints the result of
 * every model, and its MIP plan, on standard output. Returns: the exit code; errors are on standard
 * error or in the log. */
int serve_check(const struct serve_settings *settings, const struct repository_options *options,
                struct arena *arena);

#endif
