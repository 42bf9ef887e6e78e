/* The logging extension's settings and the log itself. Thread: any. */
#ifndef SLUICE_SERVE_FRONTEND_LOG_SETTINGS_H
#define SLUICE_SERVE_FRONTEND_LOG_SETTINGS_H

#include "codec/kserve/logging.h"

/* Changes what is given, each on its own, and says so in the log. */
void log_settings_apply(const struct v2_log_settings *settings);
/* How it is now. */
struct v2_log_settings log_settings_get(void);

#endif
