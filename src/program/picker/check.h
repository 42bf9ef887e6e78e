/* `sluice pick --check` and `--explain`: the configuration is read, nothing is listened on. */
#ifndef SLUICE_PROGRAM_PICKER_CHECK_H
#define SLUICE_PROGRAM_PICKER_CHECK_H

#include "program/picker/settings.h"

/* Each prints on standard output. Returns: the exit code; what is wrong is said on standard
 * error. */
int pick_check(const struct pick_settings *settings, struct arena *arena);
int pick_explain_request(const struct pick_settings *settings, struct arena *arena);

#endif
