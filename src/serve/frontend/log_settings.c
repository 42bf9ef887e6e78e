/* The logging extension: a switch for each log level, and the verbose level. */
#include "serve/frontend/log_settings.h"

#include "core/base/log.h"

void log_settings_apply(const struct v2_log_settings *settings) {
    bool any = false;
    for (size_t i = 0; i < V2_LOG_KEYS; i++) {
        any = any || settings->given[i];
    }
    if (settings->given[V2_LOG_INFO]) {
        log_level_set(LOG_INFO, settings->info);
    }
    if (settings->given[V2_LOG_WARNING]) {
        log_level_set(LOG_WARNING, settings->warning);
    }
    if (settings->given[V2_LOG_ERROR]) {
        log_level_set(LOG_ERROR, settings->error);
    }
    if (settings->given[V2_LOG_VERBOSE_LEVEL]) {
        log_verbose_set(settings->verbose_level);
    }
    if (any) {
        struct v2_log_settings now = log_settings_get();
        log_event(LOG_INFO, "log settings changed", LOG_U64("info", now.info),
                  LOG_U64("warning", now.warning), LOG_U64("error", now.error),
                  LOG_U64("verbose_level", now.verbose_level));
    }
}

struct v2_log_settings log_settings_get(void) {
    return (struct v2_log_settings){.info = log_enabled(LOG_INFO),
                                    .warning = log_enabled(LOG_WARNING),
                                    .error = log_enabled(LOG_ERROR),
                                    .verbose_level = log_verbose()};
}
