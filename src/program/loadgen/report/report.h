/* The result of a run, printed: as text for a terminal (report.c), as JSON and as one page that
 * draws the JSON (json.c, bench_page.html). */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_REPORT_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_REPORT_H

#include "core/base/buf.h"
#include "program/loadgen/report/result.h"

/* The run, the table, and below it notes about the validity of the numbers. */
void bench_report_print(struct buf *out, const struct bench_result *result);
/* All that was measured, for programs. docs/bench.md has its members. */
void bench_json_print(struct buf *out, const struct bench_result *result);
/* Charts, table and the run's settings, drawn by a script of the page. It refers to nothing outside
 * itself, and is readable in light and dark mode, on paper and on a telephone. */
void bench_html_print(struct buf *out, const struct bench_result *result);

/* ---- parts that text and JSON share ---------------------------------------------------------- */

/* "KServe v2 over HTTP, binary, batch 8: 3 inputs, 6,272 bytes" */
void bench_request_print(struct buf *out, const struct bench_result *result);
/* "each step: 5 s, after 1 s of warm-up" and what else differs from the usual. */
void bench_plan_print(struct buf *out, const struct bench_result *result);
/* Prints one note, without a line end: failures, requests that were never sent, an overloaded
 * generator, varying rates. Returns: false when there is no note `index`. */
bool bench_note_print(struct buf *out, const struct bench_result *result, size_t index);
/* "Best: 41,203 requests/s at concurrency 16, 99 % of them within 0.52 ms". Nothing if no step
 * qualifies. */
void bench_best_print(struct buf *out, const struct bench_result *result);
/* A time of day as "2026-01-31T12:00:00Z". */
void bench_time_print(struct buf *out, int64_t seconds);

#endif
