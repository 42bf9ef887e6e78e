/* The result of a run as text for a terminal: what was run, the table, and below it what a reader
 * must know before believing the numbers. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_REPORT_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_REPORT_H

#include "core/base/buf.h"
#include "program/loadgen/report/result.h"

void bench_report_print(struct buf *out, const struct bench_result *result);

/* The parts that the page has too. */
/* "KServe v2 over HTTP, binary, batch 8: 3 inputs, 6,272 bytes" */
void bench_request_print(struct buf *out, const struct bench_result *result);
/* "5 s a step after 1 s of warm-up" and what else differs from the usual. */
void bench_plan_print(struct buf *out, const struct bench_result *result);
/* One note after the other, without line ends: failures, requests that were never sent, a generator
 * that was too slow, rates that varied. Returns: false when there is no note `index`. */
bool bench_note_print(struct buf *out, const struct bench_result *result, size_t index);
/* "Best: 41,203 requests/s at concurrency 16, p99 0.52 ms". Nothing where there is none. */
void bench_best_print(struct buf *out, const struct bench_result *result);

#endif
