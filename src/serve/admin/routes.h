/* The admin listener (--metrics): health, metrics, the status page and the debug state. It reads
 * counters and changes nothing.
 *
 * Thread: admin_api_router any; its callbacks on the worker of the listener. */
#ifndef SLUICE_SERVE_ADMIN_ROUTES_H
#define SLUICE_SERVE_ADMIN_ROUTES_H

#include <stdatomic.h>

#include "core/event/loop_health.h"
#include "net/server/http/server.h"
#include "serve/repository/repository.h"
#include "telemetry/admin/metrics_page.h"
#include "telemetry/admin/process.h"
#include "telemetry/admin/router.h"
#include "telemetry/admin/state.h"

/* The page /metrics: the metric registry, the process, and each model version. */
struct admin_metrics {
    struct repository *repository;
    struct admin_process process;
    const struct latency_options *latencies; /* set after admin_metrics_init */
    struct metrics_page page;
    const char *http_url; /* where models are served, for the example on the status page; NULL: not
                             over HTTP. Set before the listener is open */
};

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

/* Appends the state of every model and instance as text, for telemetry/admin/state.h. `context` is
 * the struct repository. Thread: any. */
void admin_models_print(void *context, struct buf *out);

/* metrics.c */
void admin_metrics_init(struct admin_metrics *metrics, struct repository *repository,
                        const char *version);
void admin_metrics_fini(struct admin_metrics *metrics);
/* Appends the whole page. Thread: any. */
void admin_metrics_print(struct admin_metrics *metrics, struct metric_text *text);
/* Answers a request with the page, in the format that its Accept header selects. */
void admin_metrics_reply(struct admin_metrics *metrics, struct http_exchange *exchange);

/* The status page: the bytes of status_page.html (cmake/embed.cmake). */
struct str status_page(void);

#endif
