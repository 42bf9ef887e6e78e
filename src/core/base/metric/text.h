/* The two text formats of metrics: Prometheus' 0.0.4 and OpenMetrics 1.0. A page is written family
 * by family, each head followed by its samples. Names, help and values come from the caller.
 *
 * A counter whose name does not end with "_total" has the type unknown in OpenMetrics, which would
 * require another name: names are those that dashboards for the reference server query.
 *
 * Prometheus text format 0.0.4; OpenMetrics 1.0, "Text Format". */
#ifndef SLUICE_CORE_BASE_METRIC_TEXT_H
#define SLUICE_CORE_BASE_METRIC_TEXT_H

#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/metric/histogram.h"

enum metric_format { METRIC_FORMAT_PROMETHEUS, METRIC_FORMAT_OPENMETRICS };

enum metric_kind {
    METRIC_KIND_COUNTER,
    METRIC_KIND_GAUGE,
    METRIC_KIND_HISTOGRAM,
    METRIC_KIND_SUMMARY,
};

/* A page being written. */
struct metric_text {
    struct buf *out;
    enum metric_format format;
    struct str name; /* of the current family */
};

/* Chooses the format by an Accept field (ptr NULL: there is none): OpenMetrics where it is named
 * and weighs no less than plain text. */
enum metric_format metric_format_negotiate(struct str accept);
/* The Content-Type. */
const char *metric_content_type(enum metric_format format);

/* Begins a family; `name` must stay valid until the next one. */
void metric_text_begin(struct metric_text *text, struct str name, enum metric_kind kind,
                       struct str help);
/* A sample; `labels` as metric_label_add makes them, or empty. */
void metric_text_i64(struct metric_text *text, struct str labels, int64_t value);
void metric_text_u64(struct metric_text *text, struct str labels, uint64_t value);
void metric_text_f64(struct metric_text *text, struct str labels, double value);
/* All samples of a histogram, with the bounds from `first` to `last` and the infinite one. */
void metric_text_distribution(struct metric_text *text, struct str labels,
                              const struct metric_distribution *distribution, enum metric_unit unit,
                              unsigned first, unsigned last);
/* The same of a histogram with bounds of its own, whose cells were read into `counts`. */
void metric_text_scale(struct metric_text *text, struct str labels,
                       const struct metric_scale *scale, const uint64_t *counts);
/* The same of a histogram of any values: `counts` has one for each of the `n` bounds, and one for
 * larger values. */
void metric_text_histogram(struct metric_text *text, struct str labels, const double *bounds,
                           size_t n, const uint64_t *counts, double sum);
/* A quantile of a summary, 0 to 1. */
void metric_text_quantile(struct metric_text *text, struct str labels, double quantile,
                          double value);
/* The rest of a summary. */
void metric_text_totals(struct metric_text *text, struct str labels, uint64_t sum, uint64_t count);
/* After the last family. */
void metric_text_end(struct metric_text *text);

/* Appends name="value", after a comma unless it is the first; the value is escaped. */
void metric_label_add(struct buf *labels, const char *name, struct str value);

#endif
