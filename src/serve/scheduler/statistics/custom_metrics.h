/* Metrics that models define themselves, through their backend. They belong to the process: two
 * instances, or two models, that open the same series have the same numbers. A series is on the
 * page while it is open.
 *
 * Thread: any, for all functions. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_CUSTOM_METRICS_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_CUSTOM_METRICS_H

#include "core/base/metric/text.h"
#include "sluice/backend.h"

/* The limits. The page is printed by an event loop, which lines of custom metrics must not hold. */
enum {
    CUSTOM_METRIC_MAX_FAMILIES = 400,
    CUSTOM_METRIC_MAX_LINES = 4000, /* a histogram has one for each bucket, and three more */
    CUSTOM_METRIC_MAX_LABELS = 32,
    CUSTOM_METRIC_MAX_BOUNDS = 100,
    CUSTOM_METRIC_MAX_NAME_BYTES = 200,  /* of families and labels */
    CUSTOM_METRIC_MAX_TEXT_BYTES = 1024, /* of a description, and the values of a series' labels */
};

/* The host functions of sluice/backend.h, which says what they do. */
sluice_status custom_family_open(const char *name, const char *help, sluice_metric_kind kind,
                                 sluice_metric_family **family, sluice_error *error);
void custom_family_close(sluice_metric_family *family);
sluice_status custom_metric_open(sluice_metric_family *family, const sluice_label *labels,
                                 size_t n_labels, const double *bounds, size_t n_bounds,
                                 sluice_metric **metric, sluice_error *error);
void custom_metric_close(sluice_metric *metric);
sluice_status custom_metric_change(sluice_metric *metric, sluice_metric_change change, double value,
                                   sluice_error *error);
sluice_status custom_metric_value(sluice_metric *metric, double *value, sluice_error *error);

/* Appends the families that have series. */
void custom_metrics_print(struct metric_text *text);

#endif
