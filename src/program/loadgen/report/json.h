/* The result of a run as JSON: everything that was measured, for programs. docs/bench.md has its
 * members. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_JSON_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_JSON_H

#include "core/base/buf.h"
#include "program/loadgen/report/result.h"

void bench_json_print(struct buf *out, const struct bench_result *result);
/* A time of day as "2026-01-31T12:00:00Z". */
void bench_time_print(struct buf *out, int64_t seconds);

#endif
