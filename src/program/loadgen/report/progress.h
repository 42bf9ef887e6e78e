/* The line of progress on a terminal: what the load does now. On anything but a terminal it does
 * not exist.
 *
 * Thread: one. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_PROGRESS_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/buf.h"
#include "program/loadgen/plan.h"
#include "program/loadgen/report/histogram.h"

/* The state of a step, taken while it runs. */
struct bench_live_stats {
    const struct bench_step *step;
    size_t index, n_steps;
    uint64_t now_ns, from_ns, until_ns; /* until: UINT64_MAX where requests are counted */
    uint64_t n_answered, n_failed;      /* since the step began */
    int64_t n_left;                     /* requests, where they are counted */
    struct bench_histogram latency;     /* counts alone */
};

struct bench_progress;

/* `file` is shown to if it is a terminal. Returns: NULL where it is not, or when out of memory:
 * allowed below. */
struct bench_progress *bench_progress_new(FILE *file);
void bench_progress_free(struct bench_progress *progress);
void bench_progress_show(struct bench_progress *progress, const struct bench_live_stats *live);
/* Clears the line, for what is printed next. */
void bench_progress_clear(struct bench_progress *progress);

/* The text of the line, at most `columns` wide. Rates and percentiles are of the time since
 * `before`, an earlier state of the same step. */
void bench_progress_print(struct buf *out, const struct bench_live_stats *live,
                          const struct bench_live_stats *before, unsigned columns);

#endif
