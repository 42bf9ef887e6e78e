/* The steps of a run, one after the other: makes the threads of each, watches them, and gathers
 * what they counted. It refuses to print. */
#ifndef SLUICE_PROGRAM_LOADGEN_RUN_H
#define SLUICE_PROGRAM_LOADGEN_RUN_H

#include "program/loadgen/report/progress.h"
#include "program/loadgen/report/result.h"

/* Runs the plan of the settings until its end, a SIGINT or SIGTERM (a second one waits for no more
 * answers), a step above --max-p99, or one without a single answer. `progress` may be NULL. Fills
 * the steps of `result`, in `arena`, and `interrupted`; its other members are set. Returns:
 * ST_NO_MEMORY, ST_IO, ST_BAD_CONFIG for more connections than the process may have.
 * Thread: the main one, before others; the two signals are held back from here on. */
enum status bench_run(struct arena *arena, struct bench_result *result,
                      struct bench_progress *progress, struct error *err)
    __attribute__((warn_unused_result));

/* How many threads make the load of a step, where the settings leave it open. */
unsigned bench_threads(uint64_t asked, unsigned n_connections, unsigned n_cpus);

#endif
