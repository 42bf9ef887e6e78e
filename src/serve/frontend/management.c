/* Each step is the same over HTTP and gRPC. */
#include "serve/frontend/management.h"

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
    if (settings->given[V2_LOG_FORMAT]) {
        log_iso8601_set(settings->iso8601);
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
                                    .verbose_level = log_verbose(),
                                    .iso8601 = log_iso8601()};
}

enum status repository_change_from_request(struct arena *arena,
                                           const struct v2_repository_request *request,
                                           struct repository_change *out, struct error *err) {
    struct repository_file *files = arena_calloc(arena, request->n_files, sizeof(*files));
    if (!files) {
        return error_no_memory(err, "the parameters");
    }
    for (size_t i = 0; i < request->n_files; i++) {
        files[i] = (struct repository_file){request->files[i].path, request->files[i].data};
    }
    out->config = request->config;
    out->version = request->version;
    out->files = files;
    out->n_files = request->n_files;
    out->unload_dependents = request->unload_dependents;
    return ST_OK;
}
