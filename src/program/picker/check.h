/* `sluice pick --check` and `--explain`: read the configuration without listening. */
#ifndef SLUICE_PROGRAM_PICKER_CHECK_H
#define SLUICE_PROGRAM_PICKER_CHECK_H

#include "program/picker/settings.h"

/* Print on standard output, errors on standard error. Returns: the exit code. */
int pick_check(const struct pick_settings *settings, struct arena *arena);
int pick_explain_request(const struct pick_settings *settings, struct arena *arena);

#endif
