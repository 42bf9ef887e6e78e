/* The admin listener (--metrics): health, metrics, the status page and the debug state. It reads
 * counters and changes nothing.
 *
 * Thread: admin_api_router any; its callbacks on the worker of the listener. */
#ifndef SLUICE_SERVE_ADMIN_ROUTES_H
#define SLUICE_SERVE_ADMIN_ROUTES_H

#include <stdatomic.h>

#include "core/event/loop_health.h"
#include "net/server/http/server.h"
#include "serve/admin/metrics.h"
#include "telemetry/admin/routes.h"
#include "telemetry/admin/state.h"

struct admin_api {
    struct admin_metrics *metrics;
    struct admin_state state;
    const atomic_bool *draining;     /* /v2/health/ready answers 503 */
    const struct loop_health *loops; /* /v2/health/live and /ready answer 503; may be NULL */
    const struct web_access *web;
    struct admin_routes routes; /* filled by admin_api_router */
};

/* The router for http_server_new; `api` must outlive the server. */
struct http_router admin_api_router(struct admin_api *api);

/* Returns: what /v2/health/ready answers. Thread: any. */
bool admin_api_is_ready(const struct admin_api *api);

/* models.c: appends the state of every model and instance as text, for telemetry/admin/state.h.
 * `context` is the struct repository. Thread: any. */
void admin_models_print(void *context, struct buf *out);

/* status_json.c: appends the JSON object that the status page draws. `context` is the struct
 * admin_api. Counters are totals: the page computes rates from two readings. Thread: any. */
void status_json_print(void *context, const struct net_memory_report *memory, struct buf *out);

#endif
