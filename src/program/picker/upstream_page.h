/* What the parts of /metrics under upstream's names share. Internal to upstream_page.c and
 * upstream_requests.c. */
#ifndef SLUICE_PROGRAM_PICKER_UPSTREAM_PAGE_H
#define SLUICE_PROGRAM_PICKER_UPSTREAM_PAGE_H

#include "core/base/metric/metric.h"
#include "program/picker/routes.h"

/* The page being printed, and its pools. */
struct upstream_page {
    struct metric_text *text;
    const struct pick_admin_pools *list;
    bool has_deprecated; /* --deprecated-metrics */
};

/* Begins the labels of a series. */
struct buf upstream_one_label(const struct upstream_page *page, const char *name, struct str value);
/* Prints the families of requests: flow control, durations, and those by model. */
void upstream_requests_print(const struct upstream_page *page, struct pick_workers *workers);

#endif
