/* The steps of a run, from --concurrency and --rate. */
#ifndef SLUICE_PROGRAM_LOADGEN_PLAN_H
#define SLUICE_PROGRAM_LOADGEN_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"

enum { BENCH_MAX_STEPS = 64 };

/* One step. Closed loop: `concurrency` connections, each of which sends its next request after
 * its answer. Open loop (rate > 0): requests start on schedule, on at most `concurrency`
 * connections. */
struct bench_step {
    unsigned concurrency;
    double rate; /* requests per second; 0: a closed loop */
};

struct bench_plan {
    struct bench_step steps[BENCH_MAX_STEPS];
    size_t n_steps;
};

/* Numbers such as "4", "1,2,8", "1:32" (each), "1:32:2" (every second) or "1:32:x2" (doubling),
 * and lists of these. */
struct bench_sweep {
    double values[BENCH_MAX_STEPS];
    size_t n;
};

struct bench_sweep_kind {
    const char *flag; /* for error texts */
    bool whole;       /* no fractions */
    double min, max;
};

/* Returns: ST_BAD_CONFIG with the error and the expected form. */
enum status bench_sweep_parse(const struct bench_sweep_kind *kind, const char *text,
                              struct bench_sweep *out, struct error *err) SLUICE_MUST_USE;

/* Makes the steps of a run. Either text may be NULL: not given. With rates there is one
 * concurrency, the limit of requests in flight. Returns: ST_BAD_CONFIG. */
enum status bench_plan_make(const char *concurrency, const char *rate, struct bench_plan *out,
                            struct error *err) SLUICE_MUST_USE;

#endif
