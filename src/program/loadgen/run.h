/* Runs the steps one after the other: starts the threads of each, samples their counters, and
 * merges them. */
#ifndef SLUICE_PROGRAM_LOADGEN_RUN_H
#define SLUICE_PROGRAM_LOADGEN_RUN_H

#include "program/loadgen/report/progress.h"
#include "program/loadgen/report/result.h"

/* Runs the plan until its end, a SIGINT or SIGTERM (a second one does not wait for answers in
 * flight), a step above --max-p99, or one without any answer. `progress` may be NULL. Fills
 * `steps`, in `arena`, and `interrupted`; the other members of `result` are set by the caller.
 * Returns: ST_IO, ST_BAD_CONFIG for more connections than the process may have.
 * Thread: the main thread, before others start; the two signals stay blocked. */
enum status bench_run(struct arena *arena, struct bench_result *result,
                      struct bench_progress *progress, struct error *err) SLUICE_MUST_USE;

/* The number of threads for a step; `asked` 0: chosen by connections and CPUs. */
unsigned bench_threads(uint64_t asked, unsigned n_connections, unsigned n_cpus);

#endif
