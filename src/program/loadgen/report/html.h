/* The result of a run as one page: curves, table, and what was run. It refers to nothing outside
 * itself, is well-formed XML, and reads in light, in dark, on paper and on a telephone. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_HTML_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_HTML_H

#include "core/base/buf.h"
#include "program/loadgen/report/result.h"

void bench_html_print(struct buf *out, const struct bench_result *result);

/* ---- between the files of the page ----------------------------------------------------------- */

extern const char bench_style[];

/* The figures: throughput and latency over the load, percentiles, distributions. */
void bench_figures_print(struct buf *out, const struct bench_result *result);
/* The hue of step `index` of `n`: from blue, for the first, over red to orange. */
double bench_step_hue(size_t index, size_t n);

#endif
