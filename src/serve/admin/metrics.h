/* The page /metrics: the metric registry, the process, and each model version. */
#ifndef SLUICE_SERVE_ADMIN_METRICS_H
#define SLUICE_SERVE_ADMIN_METRICS_H

#include "serve/repository/repository.h"
#include "telemetry/admin/metrics_page.h"
#include "telemetry/admin/process.h"

struct admin_metrics {
    struct repository *repository;
    struct admin_process process;
    struct metrics_page page;
    const char *http_url; /* where models are served, for the example on the status page; NULL: not
                             over HTTP. Set before the listener is open */
};

void admin_metrics_init(struct admin_metrics *metrics, struct repository *repository,
                        const char *version);
void admin_metrics_fini(struct admin_metrics *metrics);
/* Appends the whole page. Thread: any. */
void admin_metrics_print(struct admin_metrics *metrics, struct metric_text *text);
/* Answers a request with the page, in the format that its Accept header selects. */
void admin_metrics_reply(struct admin_metrics *metrics, struct http_exchange *exchange);

#endif
