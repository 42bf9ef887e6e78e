/* The axis of a chart: numbers mapped to positions between 0 and 1, and round numbers as ticks. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_SCALE_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_SCALE_H

#include <stdbool.h>
#include <stddef.h>

enum { BENCH_MAX_TICKS = 24 };

struct bench_scale {
    bool log;
    double from, to; /* from < to; above 0 if log */
    double ticks[BENCH_MAX_TICKS];
    size_t n_ticks;
};

/* From 0 to a round number at or above `max`. */
void bench_scale_linear(struct bench_scale *scale, double max);
/* From min to max, both above 0, rounded outwards to 1, 2 or 5 times a power of ten. */
void bench_scale_log(struct bench_scale *scale, double min, double max);
/* Logarithmic if max is more than 15 times min, else linear. */
void bench_scale_fit(struct bench_scale *scale, double min, double max);
/* Returns: 0 at `from`, 1 at `to`; values outside are clamped. */
double bench_scale_at(const struct bench_scale *scale, double value);

#endif
