/* What operators look at: the numbers behind /metrics, and the listener of --metrics. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_ADMIN_H
#define SLUICE_PROGRAM_MODEL_SERVER_ADMIN_H

#include "program/model_server/settings.h"
#include "serve/admin/api.h"
#include "telemetry/admin/listener.h"

struct serve_admin {
    struct admin_metrics metrics;
    bool has_metrics;
    struct admin_api api;
    struct admin_listener listener;
};

/* Makes both, in zeroed memory. Returns: why it can't listen, with the setting. Owns:
 * serve_admin_free, also after a failure. */
enum status serve_admin_open(struct serve_admin *self, const struct serve_settings *settings,
                             const struct http_limits *limits, struct repository *repository,
                             struct worker *main, struct error *err)
    __attribute__((warn_unused_result));
/* One more server whose connections are written down when somebody wants to know what they do. */
void serve_admin_add_server(struct serve_admin *self, const char *name, struct net_server *server);
/* What everything is doing, into the log. Thread: main. */
void serve_admin_log_state(struct serve_admin *self);
/* After the server, if there is one, has stopped. */
void serve_admin_free(struct serve_admin *self);

#endif
