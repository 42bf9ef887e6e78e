/* The settings of the logging extension, applied to the log. Thread: any. */
#ifndef SLUICE_SERVE_FRONTEND_LOG_SETTINGS_H
#define SLUICE_SERVE_FRONTEND_LOG_SETTINGS_H

#include "codec/kserve/logging.h"

/* Applies the settings that are given, and logs the change. */
void log_settings_apply(const struct v2_log_settings *settings);
/* The current settings. */
struct v2_log_settings log_settings_get(void);

#endif
