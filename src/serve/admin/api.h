/* What operators look at, on a listener of its own (--metrics): metrics, and what the server is
 * doing. It changes nothing, and reads counters only.
 *
 * Thread: admin_api_handler on the main thread; its callbacks on the worker of the listener. */
#ifndef SLUICE_SERVE_ADMIN_API_H
#define SLUICE_SERVE_ADMIN_API_H

#include "net/server/http/server.h"
#include "serve/admin/metrics.h"
#include "telemetry/admin/routes.h"
#include "telemetry/admin/state.h"

struct admin_api {
    struct admin_metrics *metrics;
    struct admin_state state;
    struct admin_routes routes; /* filled by admin_api_handler */
};

/* The table of callbacks for http_server_new; `api` must outlive the server. */
struct http_handler admin_api_handler(struct admin_api *api);

/* models.c: What every model and instance is doing, as a text for people: for
 * telemetry/admin/state.h. */
/* `context` is the repository. Thread: any. */
void admin_models_print(void *context, struct buf *out);

/* status_json.c: What the status page draws, as one JSON object. Everything that only goes up is
 * given as it stands: whoever asks again sees how fast. */
/* Thread: any. */
void status_json_print(struct admin_metrics *metrics, struct buf *out);

#endif
