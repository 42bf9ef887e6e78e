/* What HTTP and gRPC share of the extensions with which clients change the server. */
#ifndef SLUICE_SERVE_FRONTEND_MANAGEMENT_H
#define SLUICE_SERVE_FRONTEND_MANAGEMENT_H

#include "codec/kserve/logging.h"
#include "codec/kserve/repository.h"
#include "serve/repository/repository.h"

/* Applies the settings of the logging extension that are given to the log, and logs the change.
 * Thread: any. */
void log_settings_apply(const struct v2_log_settings *settings);
/* The current settings. Thread: any. */
struct v2_log_settings log_settings_get(void);

/* Copies the parameters of a load request to the change. Returns: ST_NO_MEMORY. Owns: in `arena`.
 */
enum status repository_change_from_request(struct arena *arena,
                                           const struct v2_repository_request *request,
                                           struct repository_change *out,
                                           struct error *err) SLUICE_MUST_USE;

#endif
