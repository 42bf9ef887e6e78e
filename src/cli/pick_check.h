/* `sluice pick --check` and `--explain`: the configuration is read, nothing is listened on. */
#ifndef SLUICE_CLI_PICK_CHECK_H
#define SLUICE_CLI_PICK_CHECK_H

#include "cli/pick_settings.h"

/* Each prints on standard output. Returns: the exit code; what is wrong is said on standard
 * error. */
int pick_check(const struct pick_settings *settings, struct arena *arena);
int pick_explain_one(const struct pick_settings *settings, struct arena *arena);

#endif
