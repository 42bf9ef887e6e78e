/* The result of a run: the numbers that the reports print. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_RESULT_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_RESULT_H

#include "program/loadgen/call.h"
#include "program/loadgen/report/stats.h"
#include "program/loadgen/settings.h"

enum { BENCH_MAX_SAMPLES = 128 };

/* The counters at one time while the step was measured. */
struct bench_sample {
    uint64_t at_ns;                 /* since measuring began */
    uint64_t n_answered, n_refused; /* since then */
};

struct bench_step_result {
    struct bench_step step;
    unsigned n_threads;
    uint64_t window_ns;       /* how long the step was measured */
    struct bench_stats stats; /* of all threads */
    struct bench_sample samples[BENCH_MAX_SAMPLES];
    size_t n_samples;
};

struct bench_result {
    const struct bench_settings *settings;
    const struct bench_call *call;
    int64_t started_s; /* time of day, since 1970 in UTC */
    uint64_t first_ns; /* the first request of all, before any step, including connecting */
    unsigned n_cpus;   /* CPUs that the generator may use */
    bool interrupted;
    struct bench_step_result **steps;
    size_t n_steps;
};

/* Answers per second while the step was measured, without failures. */
double bench_rate(const struct bench_step_result *step);
/* Bytes of bodies or payloads per second, in both directions. */
double bench_byte_rate(const struct bench_step_result *step);
/* CPU use of the generator's threads, 0 to 1. */
double bench_cpu_share(const struct bench_step_result *step);
/* The largest deviation of the rate in a fifth of the step, relative to the mean. 0 with too few
 * answers. */
double bench_rate_variation(const struct bench_step_result *step);
/* Measured requests that were answered or failed. */
uint64_t bench_n_requests(const struct bench_step_result *step);
uint64_t bench_p99_ns(const struct bench_step_result *step);
/* Open loop: were the requests started? False when more than 1 % were not. Always true for a
 * closed loop. */
bool bench_kept_up(const struct bench_step_result *step);
/* The step with the highest rate whose p99 is within --max-p99, if given; steps that kept up
 * come before others. NULL: none. */
const struct bench_step_result *bench_best_step(const struct bench_result *result);
/* Of the closed-loop steps that reach 95 % of the best step's rate, the one with the lowest p99:
 * beyond it more concurrency mostly adds queueing. NULL: it is the best step itself, or there is
 * none. */
const struct bench_step_result *bench_knee_step(const struct bench_result *result);
/* Did all requests succeed, and was there at least one? */
bool bench_all_succeeded(const struct bench_result *result);

#endif
