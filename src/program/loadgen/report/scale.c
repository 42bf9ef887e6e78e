/* Axis scaling. Round numbers are 1, 2 and 5 times a power of ten. */
#include "program/loadgen/report/scale.h"

#include <math.h>

enum { TICKS_WANTED = 5, LOG_RATIO = 15 };

/* The largest round number <= `value`, or with `up` the smallest >= `value`. */
static double round_number(double value, bool up) {
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(value) + 1e-9));
    double best = power;
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        double step = power * steps[i];
        if (up && step >= value * (1 - 1e-9)) {
            return step;
        }
        if (step <= value * (1 + 1e-9)) {
            best = step;
        }
    }
    return best;
}

static void add_tick(struct bench_scale *scale, double value) {
    if (scale->n_ticks < BENCH_MAX_TICKS) {
        scale->ticks[scale->n_ticks++] = value;
    }
}

void bench_scale_linear(struct bench_scale *scale, double max) {
    double step = round_number(max > 0 ? max / TICKS_WANTED : 0.2, true);
    int n = (int)ceil(max > 0 ? max / step - 1e-9 : 1 / step);
    *scale = (struct bench_scale){.from = 0, .to = n * step};
    for (int i = 0; i <= n; i++) {
        add_tick(scale, i * step);
    }
}

void bench_scale_log(struct bench_scale *scale, double min, double max) {
    *scale = (struct bench_scale){
        .log = true, .from = round_number(min, false), .to = round_number(max, true)};
    if (scale->to <= scale->from) {
        scale->to = round_number(scale->from * 1.5, true);
    }
    bool decades_only = scale->to / scale->from > 1e3;
    double tick = scale->from;
    while (tick <= scale->to * (1 + 1e-9)) {
        double digits = log10(tick);
        if (!decades_only || fabs(digits - round(digits)) < 1e-6) {
            add_tick(scale, tick);
        }
        tick = round_number(tick * 1.5, true);
    }
}

void bench_scale_fit(struct bench_scale *scale, double min, double max) {
    if (min > 0 && max > LOG_RATIO * min) {
        bench_scale_log(scale, min, max);
    } else {
        bench_scale_linear(scale, max);
    }
}

double bench_scale_at(const struct bench_scale *scale, double value) {
    if (scale->log) {
        value = value > scale->from ? log(value / scale->from) / log(scale->to / scale->from) : 0;
    } else {
        value = (value - scale->from) / (scale->to - scale->from);
    }
    return fmin(1, fmax(0, value));
}
