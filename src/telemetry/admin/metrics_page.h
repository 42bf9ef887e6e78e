/* The page /metrics of the admin listener. It is printed once for all requests that have been read,
 * or wait to be read, when the first of them comes: printing takes the longer the more models there
 * are, and a crowd must not keep health checks waiting. Their responses share its bytes.
 *
 * Thread: the exchanges', one for all. */
#ifndef SLUICE_TELEMETRY_ADMIN_METRICS_PAGE_H
#define SLUICE_TELEMETRY_ADMIN_METRICS_PAGE_H

#include <sys/queue.h>

#include "core/base/metric/metric.h"
#include "core/event/worker.h"
#include "net/server/http/server.h"

enum { METRICS_PAGE_FORMATS = METRIC_FORMAT_OPENMETRICS + 1 };

struct metrics_page_text;
STAILQ_HEAD(metrics_page_requests, metrics_page_request);

struct metrics_page {
    void (*print)(void *context, struct metric_text *text);
    void *context;
    /* internal */
    struct worker *worker; /* of the first request */
    struct loop_turn turn; /* queued while requests are left */
    bool lets_pass;        /* the connections that waited for a turn have theirs before it */
    struct metrics_page_requests waiting[METRICS_PAGE_FORMATS];
    struct metrics_page_requests printed; /* the page was printed for them */
};

/* `print` appends the page; `context` is passed to it. */
void metrics_page_init(struct metrics_page *page,
                       void (*print)(void *context, struct metric_text *text), void *context);
/* Replies with the page, in the format negotiated by Accept, in a turn of the event loop. */
void metrics_page_reply(struct metrics_page *page, struct http_exchange *exchange);

#endif
