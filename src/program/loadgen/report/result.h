/* What a run found out: the numbers that table, JSON and page are made of. It refuses to print
 * any. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_RESULT_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_RESULT_H

#include "program/loadgen/call.h"
#include "program/loadgen/report/stats.h"
#include "program/loadgen/settings.h"

enum { BENCH_MAX_SAMPLES = 128 };

/* The state of a step at one time while it was measured. */
struct bench_sample {
    uint64_t at_ns;                 /* since measuring began */
    uint64_t n_answered, n_refused; /* since then */
};

struct bench_step_result {
    struct bench_step step;
    unsigned n_threads;
    uint64_t window_ns;       /* how long it was measured */
    struct bench_stats stats; /* of all threads */
    struct bench_sample samples[BENCH_MAX_SAMPLES];
    size_t n_samples;
};

struct bench_result {
    const struct bench_settings *settings;
    const struct bench_call *call;
    int64_t started_s; /* time of day, since 1970 in UTC */
    uint64_t first_ns; /* the first request of all, with connecting; before any step */
    unsigned n_cpus;   /* that the generator may use */
    bool interrupted;
    struct bench_step_result **steps;
    size_t n_steps;
};

/* Answers a second while the step was measured, failures left out. */
double bench_rate(const struct bench_step_result *step);
/* Bytes of bodies or payloads a second, there and back. */
double bench_byte_rate(const struct bench_step_result *step);
/* How busy the generator's threads were, 0 to 1. */
double bench_cpu_share(const struct bench_step_result *step);
/* The largest deviation of the rate in a fifth of the step from the mean, as a share of it. 0 where
 * there are too few answers to tell. */
double bench_rate_variation(const struct bench_step_result *step);
/* Measured requests that were answered or failed. */
uint64_t bench_n_requests(const struct bench_step_result *step);
uint64_t bench_p99_ns(const struct bench_step_result *step);
/* Did the requests of an open loop begin? False when more than 1 % never did. True of a closed
 * loop. */
bool bench_kept_up(const struct bench_step_result *step);
/* The step with the highest rate whose p99 is within --max-p99, if given; one that was kept up with
 * before any that was not. NULL: none. */
const struct bench_step_result *bench_best_step(const struct bench_result *result);
/* Of the steps of a closed loop that reach 95 % of the best one's rate, the one with the least p99:
 * more concurrency mostly makes requests wait. NULL: it is the best one itself, or there is
 * none. */
const struct bench_step_result *bench_knee_step(const struct bench_result *result);
/* Did every request succeed, and was there one? */
bool bench_all_succeeded(const struct bench_result *result);

#endif
