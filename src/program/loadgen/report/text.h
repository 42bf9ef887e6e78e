/* Numbers formatted for people, the same way in the progress line, the table and the page. Each
 * function prints into `out`, NUL-terminated, and returns it. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_TEXT_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_TEXT_H

#include <stdint.h>

#include "program/loadgen/plan.h"

enum { BENCH_TEXT_BYTES = 32 };

/* 12345 → "12,345". */
const char *bench_text_count(uint64_t value, char out[BENCH_TEXT_BYTES]);
/* With three significant digits, thousands with commas: "0.123", "4.56", "12.3", "12,345". */
const char *bench_text_number(double value, char out[BENCH_TEXT_BYTES]);
/* Nanoseconds as milliseconds, down to the microsecond: "0.045", "12.34", "1,234". */
const char *bench_text_ms(uint64_t ns, char out[BENCH_TEXT_BYTES]);
/* A duration with its unit: "250 ms", "5 s", "1.5 s", "45 µs". */
const char *bench_text_span(uint64_t ns, char out[BENCH_TEXT_BYTES]);
/* 0.123 → "12 %", with a no-break space. */
const char *bench_text_percent(double share, char out[BENCH_TEXT_BYTES]);
/* "concurrency 4", "rate 1,000/s". */
const char *bench_text_step(const struct bench_step *step, char out[BENCH_TEXT_BYTES]);

#endif
