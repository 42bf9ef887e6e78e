/* The progress line on a terminal: the current load and latencies. Nothing is printed to other
 * files.
 *
 * Thread: one. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_PROGRESS_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/buf.h"
#include "program/loadgen/plan.h"
#include "program/loadgen/report/histogram.h"

/* A snapshot of a running step. */
struct bench_live_stats {
    const struct bench_step *step;
    size_t index, n_steps;
    uint64_t now_ns, from_ns, until_ns; /* until_ns: UINT64_MAX if the number of requests is limited
                                           instead */
    uint64_t n_answered, n_failed;      /* since the step began */
    int64_t n_left;                     /* requests left, if their number is limited */
    struct bench_histogram latency;     /* only its counts */
};

struct bench_progress;

/* Returns: NULL if `file` is not a terminal; the functions below accept NULL. */
struct bench_progress *bench_progress_new(FILE *file);
void bench_progress_free(struct bench_progress *progress);
void bench_progress_show(struct bench_progress *progress, const struct bench_live_stats *live);
/* Clears the line before other output. */
void bench_progress_clear(struct bench_progress *progress);

/* Prints the text of the line, at most `columns` wide. Rates and percentiles cover the time
 * since `before`, an earlier snapshot of the same step. */
void bench_progress_print(struct buf *out, const struct bench_live_stats *live,
                          const struct bench_live_stats *before, unsigned columns);

#endif
