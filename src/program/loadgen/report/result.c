/* Numbers derived from the counts of a step. */
#include "program/loadgen/report/result.h"

#include <math.h>

enum { PARTS = 5, MIN_ANSWERS_A_PART = 20 };
static const double unsent_share = 0.01, enough_share = 0.95;

double bench_rate(const struct bench_step_result *step) {
    return step->window_ns > 0 ? (double)step->stats.n_in_window * 1e9 / (double)step->window_ns
                               : 0;
}

double bench_byte_rate(const struct bench_step_result *step) {
    return step->window_ns > 0
               ? (double)step->stats.n_bytes_in_window * 1e9 / (double)step->window_ns
               : 0;
}

double bench_cpu_share(const struct bench_step_result *step) {
    double available = (double)step->window_ns * step->n_threads;
    return available > 0 ? fmin(1, (double)step->stats.cpu_ns / available) : 0;
}

/* Returns: the answers received by then, interpolated between samples. */
static double answered_at(const struct bench_step_result *step, double at_ns) {
    struct bench_sample before = {0};
    for (size_t i = 0; i < step->n_samples; i++) {
        const struct bench_sample *sample = &step->samples[i];
        if ((double)sample->at_ns >= at_ns) {
            double span = (double)(sample->at_ns - before.at_ns);
            double share = span > 0 ? (at_ns - (double)before.at_ns) / span : 0;
            return (double)before.n_answered +
                   share * (double)(sample->n_answered - before.n_answered);
        }
        before = *sample;
    }
    return (double)before.n_answered;
}

double bench_rate_variation(const struct bench_step_result *step) {
    if (step->n_samples < PARTS) {
        return 0;
    }
    const struct bench_sample *last = &step->samples[step->n_samples - 1];
    double mean = (double)last->n_answered / PARTS, worst = 0, before = 0;
    if (mean < MIN_ANSWERS_A_PART) {
        return 0;
    }
    for (int i = 1; i <= PARTS; i++) {
        double now = answered_at(step, (double)last->at_ns * i / PARTS);
        worst = fmax(worst, fabs(now - before - mean) / mean);
        before = now;
    }
    return worst;
}

uint64_t bench_n_requests(const struct bench_step_result *step) {
    return bench_histogram_total(&step->stats.latency) + step->stats.n_failed;
}

uint64_t bench_p99_ns(const struct bench_step_result *step) {
    return bench_histogram_quantile(&step->stats.latency, 0.99);
}

bool bench_kept_up(const struct bench_step_result *step) {
    double begun = (double)(bench_n_requests(step) + step->stats.n_abandoned);
    double unsent = (double)step->stats.n_unsent;
    return unsent <= unsent_share * (begun + unsent);
}

static bool is_better(const struct bench_step_result *a, const struct bench_step_result *b) {
    if (bench_kept_up(a) != bench_kept_up(b)) {
        return bench_kept_up(a);
    }
    return bench_rate(a) > bench_rate(b);
}

const struct bench_step_result *bench_best_step(const struct bench_result *result) {
    uint64_t limit = result->settings->options.max_p99_ns;
    const struct bench_step_result *best = NULL;
    for (size_t i = 0; i < result->n_steps; i++) {
        const struct bench_step_result *step = result->steps[i];
        bool fits = bench_histogram_total(&step->stats.latency) > 0 &&
                    (limit == 0 || bench_p99_ns(step) <= limit);
        if (fits && (!best || is_better(step, best))) {
            best = step;
        }
    }
    return best;
}

const struct bench_step_result *bench_knee_step(const struct bench_result *result) {
    const struct bench_step_result *best = bench_best_step(result), *enough = best;
    for (size_t i = 0; best && best->step.rate == 0 && i < result->n_steps; i++) {
        const struct bench_step_result *step = result->steps[i];
        if (bench_rate(step) >= enough_share * bench_rate(best) &&
            bench_p99_ns(step) < bench_p99_ns(enough)) {
            enough = step;
        }
    }
    return enough == best ? NULL : enough;
}

bool bench_all_succeeded(const struct bench_result *result) {
    uint64_t n = 0;
    for (size_t i = 0; i < result->n_steps; i++) {
        if (result->steps[i]->stats.n_failed > 0) {
            return false;
        }
        n += bench_histogram_total(&result->steps[i]->stats.latency);
    }
    return n > 0;
}
