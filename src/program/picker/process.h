/* The running endpoint picker: opens and closes its components in order.
 *
 * pools read → listening, ready → SIGTERM: draining → no open stream: stopped */
#ifndef SLUICE_PROGRAM_PICKER_PROCESS_H
#define SLUICE_PROGRAM_PICKER_PROCESS_H

#include "core/base/status.h"
#include "program/picker/settings.h"

/* Runs until SIGTERM or SIGINT, then until the open streams have ended, or for --drain-timeout.
 * Returns: ST_OK after a regular stop; otherwise why it could not start. */
enum status pick_process_run(const struct pick_settings *settings,
                             struct error *err) SLUICE_MUST_USE;

/* check.c: `sluice pick --check` and `--explain` read the configuration without listening, and
 * print on standard output, errors on standard error. Return: the exit code. */
int pick_check(const struct pick_settings *settings, struct arena *arena);
int pick_explain_request(const struct pick_settings *settings, struct arena *arena);

#endif
